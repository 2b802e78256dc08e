//! What gives cached memory back to the driver.

use super::arena::Arena;
use super::history::HistoryAction;
use super::policy::{Request, share};
use super::whole::{Detached, WholeFree};
use super::{CachingAllocator, segment};
use crate::backend::{Backend, DevicePtr};
use crate::stream::Stream;
use crate::sync::OwnedLock;
use crate::types::{PoolKind, Result};

impl<B: Backend> CachingAllocator<B> {
    /// Gives every whole free segment, and of expandable ones every whole free page, back to the driver, after waiting for the
    /// streams that still use freed blocks. PyTorch: `empty_cache`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where waiting or unmapping failed; nothing is lost, and it may be called again.
    pub fn empty_cache(&self) -> Result<()> {
        if let Some(recorder) = &mut self.ledger.lock().recorder {
            recorder.note(HistoryAction::CacheEmptied);
        }
        let released = self.release_all();
        self.sweep();
        released
    }

    /// PyTorch: `release_cached_blocks`.
    pub(super) fn release_all(&self) -> Result<()> {
        self.wait_for_all()?;
        let mut released = Ok(());
        for pool in [PoolKind::Large, PoolKind::Small] {
            for arena in self.arenas.iter() {
                self.give_back(arena, |arena| arena.detach_all(pool));
            }
            for arena in self.arenas.iter() {
                released = released.and(self.unmap_free(arena, pool));
            }
        }
        released = released.and(self.release_compact());
        self.returning.wait(); // what other threads are giving back
        released
    }

    /// Rung 5: with `max_split_size_mb`, gives back the stream's oversize segments that make room for the request.
    /// Whether they do. PyTorch: `release_available_cached_blocks`.
    pub(super) fn release_oversize(&self, request: &Request, stream: Stream<B>) -> bool {
        let arena = self.arena(stream.id());
        let config = arena.lock().config;
        if config.max_split_size == u64::MAX {
            return false;
        }
        let wanted = request.size.max(config.max_split_size);
        let released = self.give_back(arena, |arena| {
            let chosen = arena.oversize_for(request.pool, wanted);
            chosen.into_iter().filter_map(|whole| arena.detach(whole)).collect()
        });
        released >= wanted
    }

    /// Rung 3: over the threshold, gives back the unsplit large blocks that have been free for longer than the mean,
    /// round by round, until enough is back. Waits for nothing. PyTorch: `garbage_collect_cached_blocks`.
    pub(super) fn collect_garbage(&self) {
        let threshold = self.config().garbage_collection_threshold;
        let Some(excess) = self.over_threshold(threshold) else { return };
        let now = self.clock(PoolKind::Large);
        let mut candidates: Vec<_> = self
            .arenas
            .iter()
            .flat_map(|arena| {
                arena.lock().whole_free(PoolKind::Large).into_iter().map(move |whole| (arena, whole))
            })
            .collect();
        // A block can have become free after the clock was read.
        let age = |whole: &WholeFree| {
            u64::from(now.wrapping_sub(whole.free_since).cast_signed().max(0).cast_unsigned())
        };
        let mut reclaimed = 0;
        while reclaimed < excess && !candidates.is_empty() {
            let total: u64 = candidates.iter().map(|(_, whole)| age(whole)).sum();
            let mean = total as f64 / candidates.len() as f64;
            let (old, young) = candidates.into_iter().partition(|(_, whole)| age(whole) as f64 >= mean);
            candidates = young;
            let old: Vec<(&OwnedLock<Arena<B::Ptr>>, WholeFree)> = old;
            for (arena, whole) in old {
                reclaimed += whole.size;
                self.give_back(arena, |arena| arena.detach(whole).into_iter().collect());
            }
        }
    }

    /// Bytes reserved over the threshold of garbage collection, if it is on and reached.
    fn over_threshold(&self, threshold: f64) -> Option<u64> {
        let books = self.ledger.lock();
        let start = share(threshold, books.limit()?);
        (threshold > 0.0 && books.charged() > start).then(|| books.charged() - start)
    }

    /// With caching off, gives back what the arena holds.
    pub(super) fn release_uncached(&self, arena: &OwnedLock<Arena<B::Ptr>>) {
        if arena.lock().compact.is_some() {
            let _ = self.release_compact(); // as below
            return;
        }
        for pool in [PoolKind::Large, PoolKind::Small] {
            self.give_back(
                arena,
                |arena| if arena.config.caching { Vec::new() } else { arena.detach_all(pool) },
            );
            // Pages that the driver would not unmap are free memory, which is asked for again.
            let _ = self.unmap_free(arena, pool);
        }
    }

    /// Takes segments out of the arena's books, and outside its lock returns them to the driver and enters that into the
    /// ledger. Bytes that went back.
    pub(super) fn give_back(
        &self,
        arena: &OwnedLock<Arena<B::Ptr>>,
        detach: impl FnOnce(&mut Arena<B::Ptr>) -> Vec<Detached<B::Ptr>>,
    ) -> u64 {
        let (config, segments) = {
            let mut arena = arena.lock();
            let segments = detach(&mut arena).into_iter().map(|segment| (segment, self.returning.begin()));
            let segments: Vec<_> = segments.collect();
            let mut books = self.ledger.lock();
            if let Some(recorder) = &mut books.recorder {
                // Ahead of the driver, which may give the same address to somebody else at once.
                for (segment, _) in &segments {
                    recorder.segment_given_back(segment.ptr.trace_address(), segment.size, segment.stream);
                }
            }
            (arena.config, segments)
        };
        let mut bytes = 0;
        for (detached, _returning) in segments {
            let (pool, size) = (detached.pool, detached.size);
            segment::give_back(self.backend, detached);
            self.ledger.lock().segment_released(&config, pool, size);
            bytes += size;
        }
        bytes
    }
}
