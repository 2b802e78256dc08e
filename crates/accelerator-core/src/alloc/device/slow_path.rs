//! Allocation and free off the warm path: segments may be expandable, a policy other than best fit chooses blocks,
//! recording is on, searches are counted for garbage collection, caching is off, or counters need settling.

use super::DeviceAllocator;
use crate::alloc::arena::{AllocatedBlock, Arena};
use crate::alloc::blocks::BlockId;
use crate::alloc::pending::PendingBlock;
use crate::alloc::source::Entry;
use crate::alloc::stats::NeedsSettling;
use crate::sync::Guard;
use crate::types::{Result, StreamId};

impl DeviceAllocator {
    #[inline(never)]
    pub(super) fn allocate_on_slow_path<'a>(&'a self, own: Entry<'a>, stream: StreamId) -> Result<AllocatedBlock> {
        let (mut arena, request) = self.memory.enter(own, stream);
        if !arena.takes_slow_path() {
            return match arena.take(&request, stream, self.arenas().clock(request.pool)) {
                Ok(Some(block)) => Ok(block),
                Ok(None) => self.after_plain_miss((arena, request), stream),
                Err(NeedsSettling) => self.allocate_with_statistics((arena, request), stream),
            };
        }
        self.allocate_with_statistics((arena, request), stream)
    }

    /// Allocates with the device statistics locked: while recording is on, searches are counted, caching is off, or
    /// counters need settling.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_with_statistics(
        &self,
        (arena, request): Entry<'_>,
        stream: StreamId,
    ) -> Result<AllocatedBlock> {
        let capture = arena.capture();
        let (arena, context) = self.arenas().captured(arena, capture);
        let entry = (arena, request);
        let wanted = self.memory.wanted(&entry, stream, context);
        match self.arenas().search(entry.0, &wanted.parameters) {
            Some(block) => Ok(block),
            None => self.after_miss(&wanted),
        }
    }

    #[inline(never)]
    pub(super) fn free_on_slow_path(&self, mut arena: Guard<'_, Arena>, block: BlockId) {
        if arena.takes_slow_path() {
            return self.free_with_statistics(arena, block);
        }
        let clock = self.arenas().clock(arena.block(block).pool);
        match arena.free(block, clock) {
            Ok(None) => {}
            Ok(Some(users)) => {
                let (begun, block) = (self.pending.begin(), PendingBlock { arena: arena.id(), block });
                drop(arena);
                self.pending.await_uses(&self.memory.context, begun, block, &users);
            }
            Err(NeedsSettling) => self.free_with_statistics(arena, block),
        }
    }

    /// Frees with the device statistics locked: while recording is on, searches are counted, caching is off, or
    /// counters need settling.
    #[cold]
    #[inline(never)]
    fn free_with_statistics(&self, arena: Guard<'_, Arena>, block: BlockId) {
        let capture = arena.capture_of_frees();
        let (arena, context) = self.arenas().captured(arena, capture);
        let (id, caching) = (arena.id(), arena.config().caching);
        let clock = self.arenas().clock(arena.block(block).pool);
        let mut entered = self.arenas().enter(arena);
        let users = entered.free(block, clock, context.as_ref());
        let users = users.map(|users| (users, self.pending.begin()));
        let discarded = entered.leave();
        match users {
            Some((users, begun)) => {
                let block = PendingBlock { arena: id, block };
                self.pending.await_uses(&self.memory.context, begun, block, &users);
            }
            None if caching => {}
            None => {
                self.memory.release_uncached(id);
                self.arenas().drop_discarded();
            }
        }
        drop(discarded); // as in `drop_discarded`, without locking again
    }
}
