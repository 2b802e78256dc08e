//! Allocation at a given address, and checkpoints of private pools.

use std::num::NonZeroU64;

use super::DeviceAllocator;
use crate::alloc::arena::{AllocatedBlock, ArenaId, SegmentState};
use crate::alloc::arenas::{Parameters, settled};
use crate::alloc::blocks::{BlockId, State};
use crate::alloc::settings::TOO_LARGE;
use crate::alloc::source::Context;
use crate::types::{Error, MemPoolId, PoolKind, Result, StreamId};

/// The state of a private pool's memory: the segments of each of its arenas.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    pub(crate) pool: MemPoolId,
    arenas: Vec<(ArenaId, Vec<SegmentState>)>,
}

impl DeviceAllocator {
    /// Allocates the block at this address, if it is free.
    pub(crate) fn allocate_at(
        &self,
        address: u64,
        bytes: NonZeroU64,
        stream: StreamId,
    ) -> Result<Option<AllocatedBlock>> {
        if bytes.get() >= TOO_LARGE {
            return Err(self.too_large(bytes));
        }
        if self.pending.may_have_any() {
            self.pending.poll(&self.memory, stream)?;
        }
        let own = self.arenas().of(ArenaId::of_stream(stream)).lock();
        let request = own.request(bytes);
        let (_lease, (arena, request)) = self.routed((own, request), stream)?;
        if arena.is_shared() {
            return Ok(None); // `policy:compact` finds a place by itself
        }
        let capture = arena.capture();
        let (arena, context) = self.arenas().captured(arena, capture);
        let parameters = Parameters { request, stream, arena: arena.id(), context };
        drop(arena);
        let clock = self.arenas().clock(request.pool);
        let mut entered = self.arenas().settle(parameters.arena);
        let taken = settled(entered.arena().store_mut().take_at(address, &request, clock));
        let Some((block, front)) = taken else { return Ok(None) };
        entered.record(&parameters, &block);
        drop(entered.leave()); // as in `drop_discarded`, without locking again
        if let Some(front) = front {
            // Only now, because PyTorch's peaks count the part before the block, too.
            settled(self.arenas().settle(parameters.arena).arena().store_mut().give_back_front(front, clock));
        }
        Ok(Some(block))
    }

    /// Returns the state of a pool's memory.
    pub(crate) fn pool_state(&self, pool: MemPoolId) -> Result<PoolState> {
        let is_pending = |arena: &ArenaId| {
            let arena = self.arenas().of(*arena).lock();
            let blocks = &arena.store().blocks;
            let mut all = blocks.segments().flat_map(|(segment, _)| blocks.of_segment(segment));
            all.any(|(_, block)| block.state == State::Pending)
        };
        self.known(pool, self.mem_pools.exists(pool))?;
        let arenas = self.mem_pools.arenas(pool);
        if arenas.iter().any(|arena| self.arenas().of(*arena).lock().is_shared()) {
            return Err(self.pool_error(pool, "follows policy:compact, which has no checkpoints"));
        }
        self.pending.end_captured_frees(&self.memory);
        if let Some(first) = arenas.first()
            && arenas.iter().any(is_pending)
        {
            let stream = self.arenas().of(*first).lock().stream();
            self.pending.poll_behind_others(&self.memory, stream)?;
            // As when the pool is set back. What is part of a capture ends with it.
            let is_captured = || self.memory.context.events.is_capturing(stream);
            if arenas.iter().any(is_pending) && !is_captured().map_err(|error| self.memory.context.error(error))? {
                self.pending.wait_for(&self.memory, |block| arenas.contains(&block.arena))?;
            }
        }
        if arenas.iter().any(is_pending) {
            return Err(self.pool_error(pool, "has freed blocks that streams still use: end their captures first"));
        }
        let state = |arena: ArenaId| (arena, self.arenas().of(arena).lock().store().state());
        Ok(PoolState { pool, arenas: arenas.into_iter().map(state).collect() })
    }

    /// Sets a pool's memory back to this state. `live` are the blocks allocated in it, all of which are freed. Returns
    /// those that are allocated afterwards, in the order of their addresses. PyTorch: `setCheckpointPoolState`.
    pub(crate) fn set_pool_state(
        &self,
        state: &PoolState,
        live: &[(ArenaId, BlockId)],
    ) -> Result<Vec<(AllocatedBlock, StreamId)>> {
        live.iter().for_each(|(arena, block)| self.free(*arena, *block));
        let arenas = self.mem_pools.arenas(state.pool);
        if self.pending.may_have_any() {
            self.pending.wait_for(&self.memory, |block| arenas.contains(&block.arena))?;
        }
        let mut allocated: Vec<(AllocatedBlock, StreamId)> = Vec::new();
        for (arena, segments) in &state.arenas {
            let mut entered = self.arenas().settle(*arena);
            let clock = self.arenas().clock(PoolKind::Large);
            let stream = entered.arena().stream();
            let Some(blocks) = settled(entered.arena().store_mut().set_to(segments, clock)) else {
                drop(entered);
                allocated.iter().for_each(|(block, _)| self.free(block.arena, block.block));
                return Err(self.pool_error(state.pool, "was used by another thread while it was set back"));
            };
            allocated.extend(blocks.into_iter().map(|block| (block, stream)));
        }
        allocated.sort_by_key(|(block, _)| block.address());
        Ok(allocated)
    }

    /// Fails unless `live` are the blocks allocated in the pool, and it has the memory that this state needs.
    pub(crate) fn check_pool_state(&self, state: &PoolState, live: &[(ArenaId, BlockId)]) -> Result<()> {
        let problem = |problem| Err(self.pool_error(state.pool, problem));
        if self.mem_pools.is_paused(state.pool) {
            return Err(self.paused(state.pool));
        }
        if self.is_current_captured()? {
            return problem("cannot be set back during a capture");
        }
        if self.has_captured_users(live)? {
            return problem("is used by a stream that is being captured");
        }
        let arenas = self.mem_pools.arenas(state.pool);
        let has_memory = |(id, segments): &(ArenaId, Vec<SegmentState>)| {
            arenas.contains(id) && self.arenas().of(*id).lock().store().has_memory_of(segments)
        };
        if !state.arenas.iter().all(has_memory) {
            return problem("no longer has the memory that it had at the checkpoint");
        }
        let mut allocated: Vec<_> =
            self.allocated_in(state.pool).iter().map(|block| (block.arena, block.block)).collect();
        for one in live {
            let Some(place) = allocated.iter().position(|block| block == one) else {
                return problem("is not the pool of an allocation that was handed over");
            };
            allocated.swap_remove(place);
        }
        if allocated.is_empty() { Ok(()) } else { problem("has live allocations that were not handed over") }
    }

    /// Returns whether a stream that used one of these blocks is being captured, which cannot be waited for.
    fn has_captured_users(&self, blocks: &[(ArenaId, BlockId)]) -> Result<bool> {
        let Context { events, arenas, .. } = &self.memory.context;
        let users = |(arena, block): &(ArenaId, BlockId)| arenas.of(*arena).lock().store().users_of(*block);
        let mut users = blocks.iter().flat_map(users);
        users.try_fold(false, |any, user| {
            Ok(any || events.is_capturing(user).map_err(|error| self.memory.context.error(error))?)
        })
    }

    /// Returns an error of a pool. Takes the lock of the pools, so no arena may be locked.
    pub(super) fn pool_error(&self, pool: MemPoolId, problem: &'static str) -> Error {
        Error::MemPool { device: self.memory.context.device, pool, name: self.mem_pools.name(pool), problem }
    }
}
