//! Reports: snapshots, the largest available block, and why memory ran out.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::DeviceAllocator;
use crate::alloc::arena::Arena;
use crate::alloc::arenas::{Held, Parameters};
use crate::alloc::blocks::{Block, BlockId, Blocks, Segment, State};
use crate::alloc::history::{History, Subject};
use crate::alloc::settings::{AllocatorConfig, Policy};
use crate::alloc::source::Wanted;
use crate::sync::Gate;
use crate::types::{
    BlockSnapshot, BlockState, Device, Error, MIB, MemPoolId, OutOfMemory, OutOfMemoryCause, PoolKind, Result,
    SegmentSnapshot, Snapshot, StreamId, TraceAction,
};

impl DeviceAllocator {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let names = self.pool_names();
        let held = self.arenas().hold_all();
        let snapshot = self.snapshot_of(held.arenas(), names);
        self.snapshot_taken(held, snapshot, MemPoolId::DEFAULT)
    }

    /// Returns the segments and blocks of one private pool.
    pub(crate) fn snapshot_of_pool(&self, id: MemPoolId) -> Snapshot {
        let names = self.name(id).map(|name| (id, name)).into_iter().collect();
        let held = self.arenas().hold_all();
        let snapshot = self.snapshot_of(held.arenas().filter(|arena| arena.mem_pool() == id), names);
        self.snapshot_taken(held, snapshot, id)
    }

    /// Records that a snapshot was taken.
    fn snapshot_taken(&self, mut held: Held<'_>, snapshot: Snapshot, mem_pool: MemPoolId) -> Snapshot {
        if let Some(recorder) = &mut held.statistics.recorder {
            let all = snapshot.segments.iter().chain(&snapshot.aliases);
            let size = all.map(|segment| segment.active_size).sum();
            recorder.trace(TraceAction::Snapshot, Subject { size, mem_pool, ..Subject::NONE }, None);
        }
        drop(held);
        self.arenas().drop_discarded();
        snapshot
    }

    pub(crate) fn history(&self) -> History {
        let names = self.pool_names();
        let held = self.arenas().hold_all();
        let snapshot = self.snapshot_of(held.arenas(), names);
        match &held.statistics.recorder {
            Some(recorder) => recorder.history(snapshot),
            None => History::unrecorded(snapshot, held.config(), held.statistics.fraction),
        }
    }

    /// Returns the segments and blocks of locked arenas. The names of their pools were looked up before, because the
    /// lock of the pools comes first.
    fn snapshot_of<'a>(
        &self,
        arenas: impl Iterator<Item = &'a Arena> + Clone,
        pool_names: BTreeMap<MemPoolId, Arc<str>>,
    ) -> Snapshot {
        let device = self.memory.context.device;
        let segments = arenas.clone().flat_map(|arena| {
            let paused = self.arenas().gate(arena.id()).is_some_and(Gate::is_closed);
            segments_of(device, arena).into_iter().map(move |segment| SegmentSnapshot { paused, ..segment })
        });
        let mut segments: Vec<_> = segments.collect();
        segments.sort_by_key(|segment| segment.address);
        let mut aliases: Vec<_> = arenas.flat_map(|arena| aliases_of(device, arena)).collect();
        aliases.sort_by_key(|segment| segment.address);
        Snapshot { segments, aliases, pool_names }
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

    /// Counts and records a failed request, and calls the observers.
    pub(super) fn out_of_memory(&self, wanted: &Wanted<'_>, cause: OutOfMemoryCause) -> Error {
        let Parameters { request, stream, arena, context } = &wanted.parameters;
        let largest_cached = self.arenas().of(*arena).lock().store().largest_free(request.pool);
        let is_rejected = cause == OutOfMemoryCause::Rejected;
        self.arenas().statistics().out_of_memory(is_rejected);
        let mut report = OutOfMemory { largest_cached, ..self.shortage(request.requested, wanted.segment_size, cause) };
        let can_expand = self.driver().address_space().is_some();
        report.advice = advice(&report, &self.arenas().config(), can_expand);
        // As in PyTorch, rejections are not recorded.
        if let Some(recorder) = self.arenas().statistics().recorder.as_mut().filter(|_| !is_rejected) {
            let device_free = report.free.unwrap_or_default();
            let subject = Subject { size: request.size, stream: *stream, ..Subject::NONE };
            recorder.trace(TraceAction::OutOfMemory { device_free }, subject, context.clone());
        }
        self.hooks.observe(&report);
        Error::OutOfMemory(Box::new(report))
    }

    /// Returns the error of taking bytes again that were paused. It is not counted, because it is no request.
    pub(super) fn no_memory_for(&self, bytes: u64, cause: OutOfMemoryCause) -> Error {
        Error::OutOfMemory(Box::new(self.shortage(bytes, bytes, cause)))
    }

    /// Returns a report with the memory that is in use.
    fn shortage(&self, requested: u64, segment: u64, cause: OutOfMemoryCause) -> OutOfMemory {
        let statistics = self.arenas().sum();
        let memory = self.driver().memory_info().ok();
        let current = |stat: crate::types::PoolStat| stat.all.current.unsigned_abs();
        let mut pools = self.pool_infos();
        pools.retain(|_, pool| pool.reserved_bytes > 0);
        let held = self.arenas().hold_all();
        let in_chunks = held.arenas().map(Arena::free_in_used_chunks).sum::<u64>();
        let InPools { allocated: allocated_in_pools, free: free_in_pools, paused_allocated, paused_pending } =
            self.in_private_pools(held.arenas());
        drop(held);
        let allocated = current(statistics.allocated_bytes);
        let pending = current(statistics.active_bytes).saturating_sub(allocated);
        let paused = statistics.paused_bytes.unsigned_abs();
        OutOfMemory {
            segment,
            total: memory.map(|memory| memory.total),
            free: memory.map(|memory| memory.free),
            allocated: allocated.saturating_sub(paused_allocated),
            allocated_in_pools,
            pending: pending.saturating_sub(paused_pending),
            rounding: current(statistics.active_bytes).saturating_sub(current(statistics.requested_bytes)),
            reserved: current(statistics.reserved_bytes).saturating_sub(paused),
            in_pieces: current(statistics.inactive_split_bytes) + in_chunks,
            free_in_pools,
            paused,
            pools,
            ..self.refusal(requested, cause)
        }
    }

    fn in_private_pools<'a>(&self, arenas: impl Iterator<Item = &'a Arena> + Clone) -> InPools {
        let private = arenas.filter(|arena| !arena.mem_pool().is_default());
        let Snapshot { segments, aliases, .. } = self.snapshot_of(private, BTreeMap::new());
        let bytes = |paused, state| {
            let segments = segments.iter().chain(&aliases).filter(|segment| segment.paused == paused);
            let blocks = segments.flat_map(|segment| &segment.blocks).filter(|block| block.state == state);
            blocks.map(|block| block.size).sum()
        };
        InPools {
            allocated: bytes(false, BlockState::Allocated),
            free: bytes(false, BlockState::Inactive),
            paused_allocated: bytes(true, BlockState::Allocated),
            paused_pending: bytes(true, BlockState::PendingFree),
        }
    }

    /// Returns the error for a request that no device can serve. As in PyTorch, it is not counted.
    pub(super) fn too_large(&self, requested: NonZeroU64) -> Error {
        Error::OutOfMemory(Box::new(self.refusal(requested.get(), OutOfMemoryCause::TooLarge)))
    }

    /// Returns a report with only the request and the cause.
    fn refusal(&self, requested: u64, cause: OutOfMemoryCause) -> OutOfMemory {
        OutOfMemory {
            device: self.memory.context.device,
            requested,
            segment: 0,
            cause,
            total: None,
            free: None,
            allowed: self.arenas().statistics().limit,
            allocated: 0,
            allocated_in_pools: 0,
            pending: 0,
            rounding: 0,
            reserved: 0,
            in_pieces: 0,
            free_in_pools: 0,
            paused: 0,
            pools: BTreeMap::new(),
            largest_cached: 0,
            advice: Vec::new(),
        }
    }
}

/// The bytes of blocks of private pools, by what they are and whether their pool is paused.
struct InPools {
    allocated: u64,
    free: u64,
    paused_allocated: u64,
    paused_pending: u64,
}

/// Returns advice on settings and actions that apply and are not in use yet.
fn advice(report: &OutOfMemory, config: &AllocatorConfig, can_expand: bool) -> Vec<&'static str> {
    let unallocated = report.reserved.saturating_sub(report.allocated + report.pending);
    let is_pytorch = config.policy == Policy::Pytorch;
    let is_much = |bytes: u64| is_pytorch && bytes >= report.requested.max(20 * MIB);
    let fragmented = is_much(unallocated.saturating_sub(report.free_in_pools));
    let used = report.total.zip(report.free).map_or(0, |(total, free)| total.saturating_sub(free));
    let used_elsewhere = used.saturating_sub(report.reserved);
    let advice = [
        (report.cause == OutOfMemoryCause::Limit, "Raise the memory fraction, or use less memory."),
        (
            report.cause == OutOfMemoryCause::Rejected && unallocated > 0,
            "Call empty_cache, or set throw_on_cudamalloc_oom:False so that the cache is released.",
        ),
        (
            report.pending >= report.requested,
            "Much freed memory is still in use by streams: synchronize them, or share fewer blocks among streams.",
        ),
        (
            fragmented && can_expand && !config.expandable_segments,
            "Much reserved memory is unallocated: set expandable_segments:True so that other requests can use it.",
        ),
        (
            fragmented && !can_expand && config.max_split_size == u64::MAX,
            "Much reserved memory is unallocated: set max_split_size_mb to keep large blocks whole.",
        ),
        (
            is_much(report.free_in_pools) && !config.reclaim_live_pools,
            "Much reserved memory is free in private pools: trim pools, reset graphs that are no longer needed, or set \
             reclaim_live_pools:True.",
        ),
        (
            report.cause == OutOfMemoryCause::Device && used_elsewhere >= report.requested,
            "Much of the device's memory is held outside this allocator, perhaps by other processes.",
        ),
    ];
    advice.into_iter().filter_map(|(applies, text)| applies.then_some(text)).collect()
}

fn segments_of(device: Device, arena: &Arena) -> Vec<SegmentSnapshot> {
    let store = &arena.store().blocks;
    let mut snapshots = Vec::new();
    for (id, segment) in store.segments() {
        let blocks: Vec<_> = store.of_segment(id).map(|(id, _)| block_snapshot(store, id)).collect();
        let of = (arena.stream_of_segment(id), arena.mem_pool());
        for mapped in blocks.split(Option::is_none).filter(|mapped| !mapped.is_empty()) {
            let blocks: Vec<_> = mapped.iter().copied().flatten().collect();
            snapshots.push(segment_snapshot(device, of, segment, blocks));
        }
    }
    snapshots
}

/// Returns the alias ranges of an arena, each as a segment of the stream of its first block.
fn aliases_of(device: Device, arena: &Arena) -> Vec<SegmentSnapshot> {
    let store = &arena.store().blocks;
    let snapshots = arena.aliases().into_iter().map(|(segment, blocks)| {
        let stream = blocks.first().map_or(arena.stream(), |id| arena.stream_of(*id));
        let segment = store.segment(segment);
        let mut blocks: Vec<_> = blocks.iter().filter_map(|id| block_snapshot(store, *id)).collect();
        blocks.sort_by_key(|block| block.address);
        let snapshot = segment_snapshot(device, (stream, arena.mem_pool()), segment, blocks);
        SegmentSnapshot { address: segment.base.address(), total_size: segment.size, ..snapshot }
    });
    snapshots.collect()
}

/// Returns the part of a segment that consists of these blocks.
fn segment_snapshot(
    device: Device,
    (stream, mem_pool): (StreamId, MemPoolId),
    of: &Segment,
    blocks: Vec<BlockSnapshot>,
) -> SegmentSnapshot {
    let allocated = blocks.iter().filter(|block| block.state == BlockState::Allocated);
    let active = blocks.iter().filter(|block| block.state.is_active());
    SegmentSnapshot {
        device,
        address: blocks.first().map_or(0, |block| block.address),
        created: of.created,
        stream,
        pool: of.pool,
        mem_pool,
        paused: false,
        expandable: of.page.is_some(),
        total_size: blocks.iter().map(|block| block.size).sum(),
        allocated_size: allocated.map(|block| block.size).sum(),
        active_size: active.clone().map(|block| block.size).sum(),
        requested_size: active.map(|block| block.requested_size).sum(),
        blocks,
    }
}

/// Returns a block's snapshot; `None` if it has no memory.
fn block_snapshot(blocks: &Blocks, id: BlockId) -> Option<BlockSnapshot> {
    let Block { size, requested, state, .. } = blocks[id];
    let state = match state {
        State::Free => BlockState::Inactive,
        State::Allocated => BlockState::Allocated,
        State::Pending => BlockState::PendingFree,
        State::Backing => BlockState::Aliased,
        State::Unmapped => return None,
    };
    Some(BlockSnapshot { address: blocks.address(id), size, requested_size: requested, state })
}
