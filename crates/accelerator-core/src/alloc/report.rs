//! What the allocator tells: snapshots, the largest block to be had, and why memory ran out.

use std::num::NonZeroU64;

use super::CachingAllocator;
use super::arena::Arena;
use super::block::{Block, Segment, State};
use super::config::{AllocatorConfig, Policy};
use super::ladder::Asked;
use super::ledger::Books;
use crate::backend::{Backend, DevicePtr};
use crate::types::{
    BlockSnapshot, BlockState, Device, Error, MIB, OutOfMemory, OutOfMemoryCause, PoolKind, Result,
    SegmentSnapshot, Snapshot, StreamId,
};

impl<B: Backend> CachingAllocator<B> {
    /// All segments and blocks at one moment. A history notes that somebody looked.
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.look(|snapshot, _, books| {
            if let Some(recorder) = &mut books.recorder {
                let all = snapshot.segments.iter().chain(&snapshot.aliases);
                recorder.looked(all.map(|segment| segment.active_size).sum());
            }
            snapshot
        });
        self.sweep();
        snapshot
    }

    /// Looks at segments and blocks, the settings and the books while nothing changes.
    pub(super) fn look<T>(&self, look: impl FnOnce(Snapshot, AllocatorConfig, &mut Books) -> T) -> T {
        let mut held = self.hold_all();
        let mut segments: Vec<_> =
            held.arenas().flat_map(|arena| segments_of(self.owner.device, arena)).collect();
        segments.sort_by_key(|segment| segment.address);
        let mut aliases: Vec<_> =
            held.arenas().flat_map(|arena| aliases_of(self.owner.device, arena)).collect();
        aliases.sort_by_key(|segment| segment.address);
        look(Snapshot { segments, aliases }, held.setup.config, &mut held.books)
    }

    /// Bytes of the largest block that could be had without giving anything back: free on the device or in the
    /// cache of any stream. PyTorch: `cacheInfo`.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be asked.
    pub fn largest_available(&self) -> Result<u64> {
        let free = self.backend.memory_info().map_err(|source| self.driver_error(source))?.free;
        let cached = self.all_arenas().map(|arena| {
            let arena = arena.lock();
            arena.largest_free(PoolKind::Small).max(arena.largest_free(PoolKind::Large))
        });
        Ok(cached.fold(free, u64::max))
    }

    /// Counts a request that failed, and tells the observers.
    pub(super) fn out_of_memory(&self, asked: &Asked<B>, cause: OutOfMemoryCause) -> Error {
        let Asked { request, segment, stream, context, .. } = asked;
        let largest_cached = self.arena(asked.arena).lock().largest_free(request.pool);
        let allowed = {
            let mut books = self.ledger.lock();
            let is_rejected = cause == OutOfMemoryCause::Rejected;
            books.statistics.num_ooms += i64::from(!is_rejected);
            books.statistics.num_oom_rejections += i64::from(is_rejected);
            books.limit()
        };
        let statistics = self.statistics();
        let memory = self.backend.memory_info().ok();
        let current = |stat: crate::types::PoolStat| stat.all.current.unsigned_abs();
        let allocated = current(statistics.allocated_bytes);
        let mut report = OutOfMemory {
            device: self.owner.device,
            requested: request.requested,
            segment: *segment,
            cause,
            total: memory.map(|memory| memory.total),
            free: memory.map(|memory| memory.free),
            allowed,
            allocated,
            pending: current(statistics.active_bytes).saturating_sub(allocated),
            reserved: current(statistics.reserved_bytes),
            largest_cached,
            advice: Vec::new(),
        };
        let can_expand = self.backend.virtual_memory().is_some();
        report.advice = advice(&report, &self.config(), can_expand);
        let recorded = report.cause != OutOfMemoryCause::Rejected; // as in PyTorch
        if let Some(recorder) = self.ledger.lock().recorder.as_mut().filter(|_| recorded) {
            let device_free = report.free.unwrap_or_default();
            recorder.out_of_memory(request.size, stream.id(), device_free, context.clone());
        }
        self.hooks.observe(&report);
        Error::OutOfMemory(Box::new(report))
    }

    /// A request that no device can hold: not counted, as in PyTorch.
    pub(super) fn too_large(&self, requested: NonZeroU64) -> Error {
        let books = self.ledger.lock();
        Error::OutOfMemory(Box::new(OutOfMemory {
            device: self.owner.device,
            requested: requested.get(),
            segment: 0,
            cause: OutOfMemoryCause::TooLarge,
            total: None,
            free: None,
            allowed: books.limit(),
            allocated: 0,
            pending: 0,
            reserved: 0,
            largest_cached: 0,
            advice: Vec::new(),
        }))
    }
}

/// What may help and is not done yet.
fn advice(report: &OutOfMemory, config: &AllocatorConfig, can_expand: bool) -> Vec<&'static str> {
    let unallocated = report.reserved.saturating_sub(report.allocated + report.pending);
    let is_pytorch = config.policy == Policy::Pytorch;
    let fragmented = is_pytorch && unallocated >= report.requested.max(20 * MIB);
    let used_elsewhere = report
        .total
        .zip(report.free)
        .map_or(0, |(total, free)| total.saturating_sub(free).saturating_sub(report.reserved));
    let advice = [
        (report.cause == OutOfMemoryCause::Limit, "Raise the memory fraction, or use less."),
        (
            report.cause == OutOfMemoryCause::Rejected && unallocated > 0,
            "Call empty_cache, or set throw_on_cudamalloc_oom:False so that the cache is released.",
        ),
        (
            report.pending >= report.requested,
            "Much memory waits for streams: synchronize them, or use fewer blocks across streams.",
        ),
        (
            fragmented && can_expand && !config.expandable_segments,
            "Much reserved memory is unallocated: set expandable_segments:True, so that it can be used elsewhere.",
        ),
        (
            fragmented && !can_expand && config.max_split_size == u64::MAX,
            "Much reserved memory is unallocated: set max_split_size_mb to keep large blocks whole.",
        ),
        (
            report.cause == OutOfMemoryCause::Device && used_elsewhere >= report.requested,
            "Much of the device's memory is held outside this allocator, by other processes perhaps.",
        ),
    ];
    advice.into_iter().filter_map(|(applies, text)| applies.then_some(text)).collect()
}

fn segments_of<P: DevicePtr>(device: Device, arena: &Arena<P>) -> Vec<SegmentSnapshot> {
    let mut snapshots = Vec::new();
    for (id, segment, blocks) in arena.segments() {
        let mut mapped = None;
        for (start, block) in blocks {
            if block.state == State::Unmapped {
                snapshots.extend(mapped.take());
                continue;
            }
            let stream = arena.stream_of_segment(id);
            let snapshot =
                mapped.get_or_insert_with(|| empty_snapshot(device, stream, segment, start.trace_address()));
            snapshot.total_size += block.size;
            add_block(snapshot, start.trace_address(), block);
        }
        snapshots.extend(mapped);
    }
    snapshots
}

/// What an arena shows at second addresses.
fn aliases_of<P: DevicePtr>(device: Device, arena: &Arena<P>) -> Vec<SegmentSnapshot> {
    let strips = arena.strips().map(|(segment, stream, len, blocks)| {
        let mut snapshot = empty_snapshot(device, stream, segment, segment.ptr.trace_address());
        snapshot.total_size = len;
        blocks.for_each(|(start, block)| add_block(&mut snapshot, start.trace_address(), block));
        snapshot.blocks.sort_by_key(|block| block.address);
        snapshot
    });
    strips.collect()
}

fn empty_snapshot<P>(
    device: Device,
    stream: StreamId,
    segment: &Segment<P>,
    address: u64,
) -> SegmentSnapshot {
    SegmentSnapshot {
        device,
        address,
        created: segment.created,
        stream,
        pool: segment.pool,
        expandable: segment.page.is_some(),
        total_size: 0,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        blocks: Vec::new(),
    }
}

fn add_block(snapshot: &mut SegmentSnapshot, address: u64, block: &Block) {
    let Block { size, requested, .. } = *block;
    let state = match block.state {
        State::Free | State::Unmapped => BlockState::Inactive,
        State::Allocated => BlockState::Allocated,
        State::Pending(_) => BlockState::PendingFree,
        State::Aliased => BlockState::Aliased,
    };
    if matches!(state, BlockState::Allocated | BlockState::PendingFree) {
        snapshot.active_size += size;
        snapshot.requested_size += requested;
    }
    if state == BlockState::Allocated {
        snapshot.allocated_size += size;
    }
    snapshot.blocks.push(BlockSnapshot { address, size, requested_size: requested, state });
}
