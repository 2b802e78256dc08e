//! Giving cached memory back to the driver.

use super::DeviceAllocator;
use crate::alloc::arena::{ArenaId, FreeSegment};
use crate::alloc::arenas::Parameters;
use crate::alloc::history::HistoryAction;
use crate::alloc::settings::{TOO_LARGE, share};
use crate::sync::primitives::lock;
use crate::types::{MemPoolId, PoolKind, Result};

impl DeviceAllocator {
    /// Waits for the streams that still use freed blocks, and gives all free memory back, except that of live private
    /// pools. In a capture, nothing may be waited for, so only the memory of released pools goes back, if the capture
    /// allows it.
    pub(crate) fn empty_cache(&self) -> Result<()> {
        self.arenas().statistics().note(|| HistoryAction::CacheEmptied);
        let released = match self.current_capture()? {
            None => self.release_all(),
            Some(capture) if self.pending.may_free_in(capture) => self.release_dead_pools(),
            Some(_) => Ok(()),
        };
        self.arenas().drop_discarded();
        released
    }

    /// Waits for the streams that still use freed blocks of a released private pool, and gives its free memory back.
    /// Does nothing if the pool is in use or does not exist, or in a capture, where nothing may be waited for.
    pub(crate) fn empty_pool(&self, id: MemPoolId) -> Result<()> {
        if !self.mem_pools.is_released(id) {
            if !self.mem_pools.exists(id) {
                self.arenas().statistics().pool_awaited_in_vain(id);
            }
            return Ok(());
        }
        if self.is_current_captured()? {
            return Ok(());
        }
        let released = self.wait_for_pool(id).and_then(|()| self.release_dead_pool(id));
        self.arenas().drop_discarded();
        released
    }

    /// Waits for the streams that still use freed blocks of a private pool, and gives its free memory back.
    pub(crate) fn trim_pool(&self, id: MemPoolId) -> Result<()> {
        let problem = match self.mem_pools.is_held_by_graph(id) {
            None => Some("does not exist"),
            Some(true) => Some("is held by a graph, which may use its free memory: reset the graph first"),
            Some(false) => self.is_current_captured()?.then_some("cannot be trimmed during a capture"),
        };
        if let Some(problem) = problem {
            return Err(self.pool_error(id, problem));
        }
        let trimmed = self.wait_for_pool(id).and_then(|()| self.reclaim(id));
        self.arenas().drop_discarded();
        trimmed
    }

    /// Waits for the streams that still use freed blocks of a private pool.
    pub(super) fn wait_for_pool(&self, id: MemPoolId) -> Result<()> {
        let arenas = self.mem_pools.arenas(id);
        self.arenas().statistics().streams_awaited();
        self.pending.wait_for(&self.memory, |block| arenas.contains(&block.arena))
    }

    /// Gives the free memory of all live private pools back that no graph uses.
    pub(super) fn reclaim_live_pools(&self) -> Result<()> {
        let reclaimed = self.mem_pools.reclaimable().into_iter().map(|id| self.reclaim(id));
        reclaimed.fold(Ok(()), Result::and)
    }

    /// Gives the free memory of a live private pool back, unless a graph has come to hold it, or it must stay.
    pub(super) fn reclaim(&self, id: MemPoolId) -> Result<()> {
        let _reclaiming = lock(&self.reclaiming);
        match self.mem_pools.is_held_by_graph(id) {
            Some(false) if !self.must_stay(id) => self.memory.release_pool(&self.mem_pools.arenas(id)),
            _ => Ok(()),
        }
    }

    /// Waits for the streams that still use freed blocks, and gives all free memory back, except that of live private
    /// pools.
    pub(super) fn release_all(&self) -> Result<()> {
        self.pending.wait_for_all(&self.memory)?;
        self.memory.release().and(self.release_dead_pools())
    }

    /// Gives the free memory of released pools back, if they have any, so that all requests can have it.
    pub(super) fn release_from_dead_pools(&self) -> Result<()> {
        let has_free = |arena: &ArenaId| {
            let arena = self.arenas().of(*arena).lock();
            [PoolKind::Large, PoolKind::Small].iter().any(|kind| arena.store().largest_free(*kind) > 0)
        };
        let released = self.mem_pools.released().into_iter();
        let with_free = released.filter(|id| self.mem_pools.arenas(*id).iter().any(has_free));
        with_free.map(|id| self.release_dead_pool(id)).fold(Ok(()), Result::and)
    }

    fn release_dead_pools(&self) -> Result<()> {
        let released = self.mem_pools.released().into_iter().map(|id| self.release_dead_pool(id));
        released.fold(Ok(()), Result::and)
    }

    /// Gives the free memory of a released pool back, unless it is in use again, or must stay.
    fn release_dead_pool(&self, id: MemPoolId) -> Result<()> {
        let reclaiming = lock(&self.reclaiming);
        if !self.mem_pools.is_released(id) || self.must_stay(id) {
            return Ok(());
        }
        let arenas = self.mem_pools.arenas(id);
        let released = self.memory.release_pool(&arenas);
        self.memory.release_unused_addresses(&arenas);
        let source = self.mem_pools.forget_if_empty(id, self.arenas());
        drop(reclaiming);
        drop(source);
        released
    }

    /// Rung 6: with `max_split_size_mb`, gives back oversize segments of the stream to make room for the request.
    /// Returns whether they suffice. Those of a private pool that a graph holds stay. PyTorch:
    /// `release_available_cached_blocks`.
    pub(super) fn release_oversize(&self, wanted: &Parameters) -> bool {
        let own = if wanted.arena == ArenaId::SHARED { ArenaId::of_stream(wanted.stream) } else { wanted.arena };
        let _reclaiming = own.number_of_private().map(|_| lock(&self.reclaiming));
        let pool = self.arenas().of(own).lock().mem_pool();
        if self.mem_pools.is_held_by_graph(pool) == Some(true) {
            return false;
        }
        let mut arena = self.arenas().of(own).lock();
        if arena.is_shared() {
            return false;
        }
        let max_split_size = arena.config().max_split_size;
        if max_split_size >= TOO_LARGE {
            return false; // no block is oversize
        }
        let bytes = wanted.request.size.max(max_split_size);
        let store = arena.store_mut();
        let chosen = store.oversize_for(wanted.request.pool, bytes);
        let detached = chosen.into_iter().filter_map(|free| store.detach(free)).collect();
        self.memory.context.give_back(arena, detached) >= bytes
    }

    /// Rung 3: over the threshold, gives back the unsplit large blocks that have been free for longer than the mean,
    /// and repeats this until enough memory has gone back. Waits for nothing. PyTorch: `garbage_collect_cached_blocks`.
    pub(super) fn collect_garbage(&self) {
        let threshold = self.arenas().config().garbage_collection_threshold;
        let Some(excess) = self.over_threshold(threshold) else { return };
        let now = self.arenas().clock(PoolKind::Large);
        let candidates = self.arenas().of_streams().flat_map(|arena| {
            let free = arena.lock().store().free_segments(PoolKind::Large);
            free.into_iter().map(move |free| (arena, free))
        });
        let mut candidates: Vec<_> = candidates.collect();
        // A block may have become free after the clock was read.
        let age =
            |free: &FreeSegment| u64::from(now.wrapping_sub(free.free_since).cast_signed().max(0).cast_unsigned());
        let mut reclaimed = 0;
        while reclaimed < excess && !candidates.is_empty() {
            let total: u64 = candidates.iter().map(|(_, free)| age(free)).sum();
            let mean = total as f64 / candidates.len() as f64;
            let old: Vec<_> = candidates.extract_if(.., |(_, free)| age(free) as f64 >= mean).collect();
            for (arena, free) in old {
                reclaimed += free.size;
                let mut arena = arena.lock();
                let detached = arena.store_mut().detach(free).into_iter().collect();
                self.memory.context.give_back(arena, detached);
            }
        }
    }

    /// Returns by how many bytes the reserved memory exceeds the garbage collection threshold, if the setting is on.
    fn over_threshold(&self, threshold: f64) -> Option<u64> {
        let statistics = self.arenas().statistics();
        let start = share(threshold, statistics.limit?);
        (threshold > 0.0 && statistics.charged > start).then(|| statistics.charged - start)
    }
}
