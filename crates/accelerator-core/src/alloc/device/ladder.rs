//! What happens when no free block serves a request: one function per rung, tried in turn.

use std::sync::atomic::Ordering;

use super::DeviceAllocator;
use crate::alloc::arena::{AllocatedBlock, Arena};
use crate::alloc::settings::Request;
use crate::alloc::source::{Failure, Wanted};
use crate::sync::Guard;
use crate::types::{OutOfMemoryCause, Result, StreamId};

impl DeviceAllocator {
    /// What becomes of a request that no free block of the arena serves, while nothing is recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn after_plain_miss(
        &self,
        arena: Guard<'_, Arena>,
        request: Request,
        stream: StreamId,
    ) -> Result<AllocatedBlock> {
        let wanted = self.memory.wanted(&arena, request, stream, None);
        drop(arena);
        self.after_miss(&wanted)
    }

    /// Climbs the ladder, as the last step of a call.
    #[cold]
    pub(super) fn after_miss(&self, wanted: &Wanted<'_>) -> Result<AllocatedBlock> {
        let block = self.climb(wanted).map_err(|failure| match failure {
            Failure::Refused(cause) => self.out_of_memory(wanted, cause),
            Failure::Error(error) => error,
        });
        self.arenas().drop_discarded();
        self.warn_of_missing_virtual_memory();
        block
    }

    /// The ladder. PyTorch: `DeviceCachingAllocator::malloc` behind the first `get_free_block`.
    fn climb(&self, wanted: &Wanted<'_>) -> Result<AllocatedBlock, Failure> {
        if wanted.source.is_hopeless(&self.memory.context, wanted.parameters.request.size) {
            // No rung makes the driver give as much at once: the cache is left alone.
            return self.grow(wanted);
        }
        if let Some(block) = self.ask_callbacks(wanted) {
            return Ok(block);
        }
        if let Some(block) = self.reuse_pending(wanted)? {
            return Ok(block);
        }
        self.collect_garbage();
        let mut grown = self.grow(wanted);
        if may_climb(&grown) && self.release_oversize(&wanted.parameters) {
            grown = self.grow(wanted);
        }
        if may_climb(&grown) {
            grown = self.release_all_and_grow(wanted);
        }
        grown
    }

    /// Rung 1: callbacks that free memory, and the cache once more.
    fn ask_callbacks(&self, wanted: &Wanted<'_>) -> Option<AllocatedBlock> {
        self.hooks.free_memory().then(|| self.arenas().search_again(&wanted.parameters)).flatten()
    }

    /// Rung 2, only with `device_side_reuse`: a block that another stream still uses, behind a wait on the device.
    /// Waits for no other event than those that the block needs, and for none on the host.
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

    /// Rung 4: memory from the driver. PyTorch: `alloc_block`.
    fn grow(&self, wanted: &Wanted<'_>) -> Result<AllocatedBlock, Failure> {
        wanted.source.grow(&self.memory.context, wanted)
    }

    /// Rung 6: waits for all events, gives back all free memory, and asks the driver a last time. What other threads have charged
    /// and are refused does not count against it.
    fn release_all_and_grow(&self, wanted: &Wanted<'_>) -> Result<AllocatedBlock, Failure> {
        self.release_all()?;
        self.arenas().statistics().totals.num_alloc_retries += 1;
        match self.grow(wanted) {
            Err(Failure::Refused(OutOfMemoryCause::Limit)) => {
                self.memory.context.asking.wait();
                self.grow(wanted)
            }
            grown => grown,
        }
    }

    /// Warns once, as PyTorch does, that expandable segments are asked for in vain. Called under no lock, since who listens is the
    /// user.
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

/// Whether a further rung may help.
fn may_climb(grown: &Result<AllocatedBlock, Failure>) -> bool {
    use OutOfMemoryCause::{AllocationTooLarge, Rejected};
    matches!(grown, Err(Failure::Refused(cause)) if !matches!(cause, Rejected | AllocationTooLarge { .. }))
}
