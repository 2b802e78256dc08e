//! Giving cached memory back to the driver.

use super::DeviceAllocator;
use crate::alloc::arena::{ArenaId, FreeSegment};
use crate::alloc::arenas::Parameters;
use crate::alloc::history::HistoryAction;
use crate::alloc::settings::share;
use crate::types::{PoolKind, Result};

impl DeviceAllocator {
    pub(crate) fn empty_cache(&self) -> Result<()> {
        self.arenas().statistics().note(|| HistoryAction::CacheEmptied);
        let released = self.release_all();
        self.arenas().drop_discarded();
        released
    }

    /// Waits for the streams that still use freed blocks, and gives all free memory back.
    pub(super) fn release_all(&self) -> Result<()> {
        self.pending.wait_for_all(&self.memory)?;
        self.memory.release()
    }

    /// Rung 5: with `max_split_size_mb`, gives back oversize segments of the stream to make room for the request.
    /// Returns whether they suffice. PyTorch: `release_available_cached_blocks`.
    pub(super) fn release_oversize(&self, wanted: &Parameters) -> bool {
        let mut arena = self.arenas().of(ArenaId::of_stream(wanted.stream)).lock();
        let max_split_size = arena.config().max_split_size;
        if max_split_size == u64::MAX {
            return false;
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
