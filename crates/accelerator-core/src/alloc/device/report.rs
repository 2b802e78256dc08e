//! What the allocator tells: snapshots, the largest block to be had, and why memory ran out.

use std::num::NonZeroU64;

use super::DeviceAllocator;
use crate::alloc::arena::Arena;
use crate::alloc::arenas::Parameters;
use crate::alloc::blocks::{Block, Segment, State};
use crate::alloc::history::History;
use crate::alloc::settings::{AllocatorConfig, Policy};
use crate::alloc::source::Wanted;
use crate::types::{
    BlockSnapshot, BlockState, Device, Error, MIB, OutOfMemory, OutOfMemoryCause, PoolKind, Result,
    SegmentSnapshot, Snapshot, StreamId,
};

impl DeviceAllocator {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut held = self.arenas().hold_all();
        let snapshot = self.snapshot_of(held.arenas());
        if let Some(recorder) = &mut held.statistics.recorder {
            let all = snapshot.segments.iter().chain(&snapshot.aliases);
            recorder.looked(all.map(|segment| segment.active_size).sum());
        }
        drop(held);
        self.arenas().drop_discarded();
        snapshot
    }

    pub(crate) fn history(&self) -> History {
        let held = self.arenas().hold_all();
        let snapshot = self.snapshot_of(held.arenas());
        match &held.statistics.recorder {
            Some(recorder) => recorder.history(snapshot),
            None => History::unrecorded(snapshot, held.config(), held.statistics.fraction()),
        }
    }

    fn snapshot_of<'a>(&self, arenas: impl Iterator<Item = &'a Arena> + Clone) -> Snapshot {
        let device = self.memory.context.device;
        let mut segments: Vec<_> = arenas.clone().flat_map(|arena| segments_of(device, arena)).collect();
        segments.sort_by_key(|segment| segment.address);
        let mut aliases: Vec<_> = arenas.flat_map(|arena| aliases_of(device, arena)).collect();
        aliases.sort_by_key(|segment| segment.address);
        Snapshot { segments, aliases }
    }

    pub(crate) fn largest_available(&self) -> Result<u64> {
        let context = &self.memory.context;
        let free = context.driver.memory_info().map_err(|source| context.error(source))?.free;
        let cached = self.arenas().all().map(|arena| {
            let arena = arena.lock();
            let largest = |pool| arena.store().largest_free(pool);
            largest(PoolKind::Small).max(largest(PoolKind::Large))
        });
        Ok(cached.fold(free, u64::max))
    }

    /// Counts a request that failed, and tells the observers.
    pub(super) fn out_of_memory(&self, wanted: &Wanted<'_>, cause: OutOfMemoryCause) -> Error {
        let Parameters { request, stream, arena, context } = &wanted.parameters;
        let largest_cached = self.arenas().of(*arena).lock().store().largest_free(request.pool);
        let allowed = {
            let mut statistics = self.arenas().statistics();
            let is_rejected = cause == OutOfMemoryCause::Rejected;
            statistics.totals.num_ooms += i64::from(!is_rejected);
            statistics.totals.num_oom_rejections += i64::from(is_rejected);
            statistics.limit()
        };
        let statistics = self.arenas().sum();
        let memory = self.driver().memory_info().ok();
        let current = |stat: crate::types::PoolStat| stat.all.current.unsigned_abs();
        let allocated = current(statistics.allocated_bytes);
        let mut report = OutOfMemory {
            device: self.memory.context.device,
            requested: request.requested,
            segment: wanted.segment,
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
        let can_expand = self.driver().address_space().is_some();
        report.advice = advice(&report, &self.arenas().config(), can_expand);
        let recorded = report.cause != OutOfMemoryCause::Rejected; // as in PyTorch
        if let Some(recorder) = self.arenas().statistics().recorder.as_mut().filter(|_| recorded) {
            let device_free = report.free.unwrap_or_default();
            recorder.out_of_memory(request.size, *stream, device_free, context.clone());
        }
        self.hooks.observe(&report);
        Error::OutOfMemory(Box::new(report))
    }

    /// A request that no device can hold: not counted, as in PyTorch.
    pub(super) fn too_large(&self, requested: NonZeroU64) -> Error {
        let allowed = self.arenas().statistics().limit();
        Error::OutOfMemory(Box::new(OutOfMemory {
            device: self.memory.context.device,
            requested: requested.get(),
            segment: 0,
            cause: OutOfMemoryCause::TooLarge,
            total: None,
            free: None,
            allowed,
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

fn segments_of(device: Device, arena: &Arena) -> Vec<SegmentSnapshot> {
    let blocks = &arena.store().blocks;
    let mut snapshots = Vec::new();
    for (id, segment) in blocks.segments() {
        let stream = arena.stream_of_segment(id);
        let mut mapped = None;
        for (id, block) in blocks.of_segment(id) {
            if block.state == State::Unmapped {
                snapshots.extend(mapped.take());
                continue;
            }
            let address = blocks.address(id);
            let snapshot = mapped.get_or_insert_with(|| empty_snapshot(device, stream, segment, address));
            snapshot.total_size += block.size;
            add_block(snapshot, address, block);
        }
        snapshots.extend(mapped);
    }
    snapshots
}

/// The ranges of addresses where memory of an arena shows once more, each as a segment of the stream of its first block.
fn aliases_of(device: Device, arena: &Arena) -> Vec<SegmentSnapshot> {
    let store = &arena.store().blocks;
    let snapshots = arena.aliases().into_iter().map(|(segment, blocks)| {
        let stream = blocks.first().map_or(arena.stream(), |id| arena.stream_of(*id));
        let segment = store.segment(segment);
        let mut snapshot = empty_snapshot(device, stream, segment, segment.base.address());
        snapshot.total_size = segment.size;
        blocks.iter().for_each(|id| add_block(&mut snapshot, store.address(*id), &store[*id]));
        snapshot.blocks.sort_by_key(|block| block.address);
        snapshot
    });
    snapshots.collect()
}

fn empty_snapshot(device: Device, stream: StreamId, segment: &Segment, address: u64) -> SegmentSnapshot {
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
        State::Backing => BlockState::Aliased,
    };
    if state.is_active() {
        snapshot.active_size += size;
        snapshot.requested_size += requested;
    }
    if state == BlockState::Allocated {
        snapshot.allocated_size += size;
    }
    snapshot.blocks.push(BlockSnapshot { address, size, requested_size: requested, state });
}
