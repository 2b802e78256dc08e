//! Allocation and free off the warm path: the thread does not own the arena, segments may be expandable, a policy other
//! than best fit chooses blocks, searches are counted for garbage collection, recording is on, caching is off, or
//! counters need settling.

use std::num::NonZeroU64;

use super::DeviceAllocator;
use crate::alloc::arena::{AllocatedBlock, Arena, ArenaId};
use crate::alloc::blocks::{BlockId, Users};
use crate::alloc::mem_pools::{Lease, Unroutable};
use crate::alloc::pending::PendingBlock;
use crate::alloc::settings::Request;
use crate::alloc::source::Entry;
use crate::alloc::stats::Counting;
use crate::sync::primitives::lock;
use crate::sync::{Guard, Step};
use crate::types::{Result, StreamId};

impl DeviceAllocator {
    #[inline(never)]
    pub(super) fn allocate_on_slow_path<'a>(&'a self, own: Entry<'a>, stream: StreamId) -> Result<AllocatedBlock> {
        if own.0.is_warm() {
            return self.allocate_by(own, stream, |arena, request, clock| arena.take_warm(request, clock));
        }
        if own.0.is_routed() {
            return self.allocate_routed(own, stream);
        }
        self.allocate_entered(self.memory.enter(own, stream), stream)
    }

    /// Allocates while some requests go to private pools.
    #[cold]
    fn allocate_routed<'a>(&'a self, own: Entry<'a>, stream: StreamId) -> Result<AllocatedBlock> {
        let (_lease, entry) = self.routed(own, stream)?;
        self.allocate_entered(entry, stream)
    }

    /// Returns the arena that serves a request of this stream, and the request adapted to it, given the stream's own
    /// arena. If it belongs to a private pool, the lease keeps the pool.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool is paused. [`Error::Driver`](crate::Error::Driver).
    pub(super) fn routed<'a>(
        &'a self,
        (own, request): Entry<'a>,
        stream: StreamId,
    ) -> Result<(Option<Lease<'a>>, Entry<'a>)> {
        if !own.is_routed() {
            return Ok((None, self.memory.enter((own, request), stream)));
        }
        let id = own.id();
        drop(own); // choosing a pool calls the driver, and the user's filter
        let lease = self.mem_pools.route(stream, &*self.memory.context.events, self.arenas());
        let lease = lease.map_err(|why| match why {
            Unroutable::Paused(pool) => self.paused(pool),
            Unroutable::Driver(error) => self.memory.context.error(error),
        })?;
        if let Some(lease) = &lease {
            self.hold_for_capture(lease, stream)?;
        }
        let arena = self.arenas().of(lease.as_ref().map_or(id, |lease| lease.arena)).lock();
        let request = NonZeroU64::new(request.requested).map_or(request, |requested| arena.request(requested));
        let entry = self.memory.enter((arena, request), stream);
        match lease.as_ref().filter(|lease| lease.arena != entry.0.id()) {
            None => Ok((lease, entry)),
            Some(refused) => {
                drop(entry);
                let own = self.mem_pools.arena_of_stream(refused, stream, self.arenas());
                let arena = self.arenas().of(own.unwrap_or(refused.arena)).lock();
                Ok((lease, (arena, request)))
            }
        }
    }

    /// In a capture, makes the graph hold the pool of a request, to which the route of another thread may lead.
    fn hold_for_capture(&self, lease: &Lease<'_>, stream: StreamId) -> Result<()> {
        if let Some(capture) = self.capture_of(stream)?
            && !self.mem_pools.holds(capture, lease)
        {
            let _reclaiming = lock(&self.reclaiming);
            self.mem_pools.hold(capture, lease.pool);
        }
        Ok(())
    }

    /// Allocates in the arena that serves the request.
    fn allocate_entered<'a>(&'a self, entry: Entry<'a>, stream: StreamId) -> Result<AllocatedBlock> {
        if entry.0.takes_slow_path() {
            return self.allocate_with_statistics(entry, stream);
        }
        self.allocate_by(entry, stream, |arena, request, clock| arena.take(request, stream, clock))
    }

    /// Allocates in this arena, which does not take the slow path.
    #[inline(always)]
    pub(super) fn allocate_by<'a>(
        &'a self,
        (mut arena, request): Entry<'a>,
        stream: StreamId,
        take: impl Fn(&mut Arena, &Request, u32) -> Counting<Option<AllocatedBlock>>,
    ) -> Result<AllocatedBlock> {
        let counts = self.arenas().counts_searches(&arena);
        let clock = self.arenas().clock(request.pool).wrapping_add(counts.into());
        let Ok(taken) = self.arenas().perhaps_gathered(&mut arena, |arena| take(arena, &request, clock)) else {
            return self.allocate_with_statistics((arena, request), stream); // which counts the search
        };
        if counts {
            self.arenas().count_search(request.pool);
        }
        match taken {
            Some(block) => Ok(block),
            None => self.after_plain_miss((arena, request), stream),
        }
    }

    /// Allocates with the device statistics locked: while recording is on, caching is off, or counters need settling.
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

    /// Frees a block of an arena that is not a stream's own.
    #[inline(always)]
    pub(super) fn free_elsewhere(&self, arena: ArenaId, block: BlockId) {
        let mut arena = self.arenas().of_others(arena).lock();
        if !arena.free_at_once(block) {
            self.free_on_slow_path(arena, block);
        }
    }

    #[inline(never)]
    pub(super) fn free_on_slow_path(&self, mut arena: Guard<'_, Arena>, block: BlockId) {
        if arena.takes_slow_path() {
            return self.free_with_statistics(arena, block);
        }
        let clock = self.arenas().clock(arena.block(block).pool);
        if arena.block(block).uses.are_any() {
            return self.free_used(arena, block);
        }
        let put_back = |arena: &mut Arena| arena.put_back_warm::<false>(block, clock);
        if self.arenas().perhaps_gathered(&mut arena, put_back).is_err() {
            self.free_with_statistics(arena, block);
        }
    }

    /// Frees a block that other streams used, in an arena that does not take the slow path.
    #[inline(never)]
    pub(super) fn free_used<E>(&self, mut arena: Guard<'_, Arena, E>, block: BlockId) {
        if let Some(users) = arena.free_when_done(block) {
            let (begun, block) = (self.pending.begin(), PendingBlock { arena: arena.id(), block });
            drop(arena);
            self.await_uses(begun, block, &users);
        }
    }

    /// Makes a freed block wait for the streams that used it. In a capture, it waits for the end of the capture.
    #[inline(always)]
    fn await_uses(&self, begun: Step<'_>, block: PendingBlock, users: &Users) {
        let context = &self.memory.context;
        // If the driver does not say, the events that it refuses to record are recorded later.
        match self.known_capture(Self::current_capture) {
            Some(capture) if self.pending.is_underway(capture) => {
                self.pending.defer(context, begun, block, users.clone(), capture);
            }
            // The end of a capture by other means is not seen here, but its uses have no events until then.
            _ => self.pending.await_uses(context, begun, block, users),
        }
    }

    /// Frees with the device statistics locked: while recording is on, caching is off, or counters need settling.
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
                self.await_uses(begun, PendingBlock { arena: id, block }, &users);
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
