//! The ladder: what happens when no free block serves a request. There is one function for each rung.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use super::DeviceAllocator;
use crate::alloc::arena::AllocatedBlock;
use crate::alloc::arenas::Parameters;
use crate::alloc::settings::Policy;
use crate::alloc::source::{Entry, Failure, Grown, Wanted};
use crate::types::{OutOfMemoryCause, Result, StreamId};

impl DeviceAllocator {
    /// Handles a miss in an arena that records nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn after_plain_miss(&self, entry: Entry<'_>, stream: StreamId) -> Result<AllocatedBlock> {
        let wanted = self.memory.wanted(&entry, stream, None);
        drop(entry);
        self.after_miss(&wanted)
    }

    /// Climbs the ladder, as the last step of a call.
    #[cold]
    pub(super) fn after_miss(&self, wanted: &Wanted<'_>) -> Result<AllocatedBlock> {
        let block = self.climb(wanted).or_else(|failure| match failure {
            Failure::Refused(cause) => {
                let rest = wanted.source.last_resort(&self.memory.context, wanted);
                rest.ok_or_else(|| self.out_of_memory(wanted, cause))
            }
            Failure::Error(error) => Err(error),
        });
        self.arenas().drop_discarded();
        self.warn_of_missing_virtual_memory();
        block
    }

    /// Tries the rungs in turn. PyTorch: `DeviceCachingAllocator::malloc` after the first `get_free_block`.
    fn climb(&self, wanted: &Wanted<'_>) -> Grown {
        if wanted.source.is_hopeless(&self.memory.context, wanted.parameters.request.size) {
            // No rung can make the driver return this much at once, so the cache is left alone.
            return self.grow(wanted);
        }
        if let Some(block) = self.ask_callbacks(wanted) {
            return Ok(block);
        }
        if let Some(capture) = self.capture_of(wanted.parameters.stream)? {
            // The other rungs wait, which would break the capture, or take memory of its graph.
            if self.pending.may_free_in(capture) {
                self.collect_garbage();
            }
            return self.grow(wanted);
        }
        if let Some(block) = self.reuse_pending(wanted)? {
            return Ok(block);
        }
        if self.arenas().config().policy == Policy::Compact {
            self.release_from_dead_pools()?;
        }
        self.collect_garbage();
        let mut grown = self.grow(wanted);
        if may_climb(&grown)
            && let Some(block) = self.borrow_from_pools(wanted)
        {
            return Ok(block);
        }
        if may_climb(&grown) && self.release_oversize(&wanted.parameters) {
            grown = self.grow(wanted);
        }
        if may_climb(&grown) {
            grown = self.release_all_and_grow(wanted);
        }
        grown
    }

    /// Rung 1: runs the callbacks that free memory, and searches the cache again if one did.
    fn ask_callbacks(&self, wanted: &Wanted<'_>) -> Option<AllocatedBlock> {
        self.hooks.free_memory().then(|| self.arenas().search_again(&wanted.parameters)).flatten()
    }

    /// Rung 2, only with `device_side_reuse`: reuses a block that other streams still use, after the stream waits for
    /// them on the device. It waits only for the events of that block, and the host does not wait.
    fn reuse_pending(&self, wanted: &Wanted<'_>) -> Result<Option<AllocatedBlock>> {
        if !self.arenas().of(wanted.parameters.arena).lock().config().device_side_reuse {
            return Ok(None);
        }
        while self.pending.reuse_by_device_wait(&self.memory, &wanted.parameters)? {
            if let Some(block) = self.arenas().search_again(&wanted.parameters) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Rung 4: takes memory from the driver. If `throw_on_cudamalloc_oom` rejects that, tries again once the charges of
    /// other threads are settled, since some may be refunded. PyTorch: `alloc_block`.
    fn grow(&self, wanted: &Wanted<'_>) -> Grown {
        match wanted.source.grow(&self.memory.context, wanted) {
            Err(Failure::Refused(OutOfMemoryCause::Rejected)) => self.grow_behind_others(wanted),
            grown => grown,
        }
    }

    /// Takes memory from the driver once the requests of other threads that are underway are over.
    fn grow_behind_others(&self, wanted: &Wanted<'_>) -> Grown {
        self.memory.context.requesting.wait();
        wanted.source.grow(&self.memory.context, wanted)
    }

    /// Rung 5: takes a free block of a private pool with `use_on_oom`, for a request outside of private pools. PyTorch:
    /// `try_mempool_fallback`.
    fn borrow_from_pools(&self, wanted: &Wanted<'_>) -> Option<AllocatedBlock> {
        let Parameters { request, stream, arena, context } = &wanted.parameters;
        if arena.number_of_private().is_some() {
            return None;
        }
        let requested = NonZeroU64::new(request.requested)?;
        let helping = self.mem_pools.on_oom(*stream, self.arenas());
        helping.iter().find_map(|lease| {
            let arena = self.arenas().of(lease.arena).lock();
            let request = arena.request(requested);
            let (stream, context) = (*stream, context.clone());
            let parameters = Parameters { request, stream, arena: lease.arena, context };
            self.arenas().search_outside_pages(arena, &parameters)
        })
    }

    /// Rung 7: waits for all events, gives all free memory back, and asks the driver one last time. If the limit
    /// refuses the request, tries again once the charges of other threads are settled, since some may be refunded.
    fn release_all_and_grow(&self, wanted: &Wanted<'_>) -> Grown {
        self.release_all()?;
        let config = self.arenas().config();
        if config.reclaim_live_pools || config.policy == Policy::Compact {
            self.reclaim_live_pools()?;
        }
        self.arenas().statistics().retried();
        match self.grow(wanted) {
            Err(Failure::Refused(OutOfMemoryCause::Limit)) => self.grow_behind_others(wanted),
            grown => grown,
        }
    }

    /// Warns once, as PyTorch does, that the setting for expandable segments has no effect. The caller must hold no
    /// lock, because the subscriber belongs to the user.
    fn warn_of_missing_virtual_memory(&self) {
        if self.driver().address_space().is_none()
            && !self.has_warned.load(Ordering::Relaxed)
            && self.arenas().config().expandable_segments
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "expandable_segments:True has no effect on {}: {} does not support virtual memory, so segments \
                 keep their size",
                self.memory.context.device,
                self.driver().properties().name,
            );
        }
    }
}

/// Returns whether another rung may help.
fn may_climb(grown: &Grown) -> bool {
    use OutOfMemoryCause::{AllocationTooLarge, Rejected};
    matches!(grown, Err(Failure::Refused(cause)) if !matches!(cause, Rejected | AllocationTooLarge { .. }))
}
