//! The blocks of one arena: counting, listing, best-fit allocation, freeing.

use super::free_lists::FreeLists;
use super::id::ArenaId;
use super::private::Private;
use crate::alloc::blocks::{Base, Block, BlockId, Blocks, Neighbours, Owner, Segment, SegmentId, State, Uses, if_free};
use crate::alloc::settings::{AllocatorConfig, Fit, Request};
use crate::alloc::stats::{Counted, Counting, Packed, Pair, StreamCounters};
use crate::types::{PoolKind, StreamId};

/// Blocks with their lists and counters.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The arena that the blocks are in.
    pub(super) arena: ArenaId,
    /// The stream that the blocks belong to: [`StreamId::SHARED`] if each has its own.
    pub(crate) stream: StreamId,
    /// A copy of the device's settings, so that the warm path reads them under the lock that it already holds.
    pub(crate) config: AllocatorConfig,
    /// The private pool that the blocks belong to.
    pub(crate) private: Private,
    pub(crate) counters: StreamCounters,
    pub(crate) blocks: Blocks,
    pub(crate) free: FreeLists,
    pub(super) uses: Uses,
    /// The number of expandable segments.
    pub(super) expandable: usize,
    /// Whether there has ever been a segment too large to be counted in [packed](Packed) words.
    pub(super) has_had_huge: bool,
}

/// A block that was allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocatedBlock {
    pub(crate) arena: ArenaId,
    pub(crate) block: BlockId,
    /// The start of its segment.
    pub(crate) base: Base,
    /// The byte offset from there.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl AllocatedBlock {
    /// Returns the start of the block as an address, as traces and snapshots show it.
    pub(crate) fn address(&self) -> u64 {
        self.base.address() + self.offset
    }
}

/// Counts a block that becomes free, either at once or after being pending.
pub(crate) type Count = fn(&mut StreamCounters, Counted) -> Counting;

impl Store {
    pub(crate) fn new(arena: ArenaId, stream: StreamId, free: FreeLists) -> Self {
        Self { arena, stream, free, ..Self::default() }
    }

    /// Allocates the best-fitting free block, if there is one. PyTorch: `get_free_block`, `alloc_found_block`.
    #[inline(always)]
    pub(super) fn take(&mut self, request: &Request, clock: u32) -> Counting<Option<AllocatedBlock>> {
        let best = self.free.of(request.pool).best_fit(&self.blocks, request.size);
        let Some(mut id) = best else { return Ok(None) };
        if self.blocks[id].expandable {
            let Some(instead) = self.instead_of_expandable(id) else { return Ok(None) };
            id = instead;
        }
        let Some(mut fit) = self.config.fit(request, self.blocks[id].size) else { return Ok(None) };
        if self.private.whole {
            fit = self.config.fit_whole(self.blocks[id].size);
        }
        self.take_block(id, request, fit, clock).map(Some)
    }

    /// Allocates a free block or its front.
    #[inline(always)]
    pub(super) fn take_block(
        &mut self,
        id: BlockId,
        request: &Request,
        fit: Fit,
        clock: u32,
    ) -> Counting<AllocatedBlock> {
        self.count_taken(id, request, fit)?;
        let Request { requested, size, pool } = *request;
        if !fit.splits {
            self.free.of_owner_mut(0, pool).remove(&mut self.blocks, id);
            let block = &mut self.blocks[id];
            block.state = State::Allocated;
            block.requested = requested;
            return Ok(self.allocated(id));
        }
        let rest = &mut self.blocks[id];
        rest.free_since = clock;
        let (state, expandable) = (State::Allocated, rest.expandable);
        let front = Block { state, requested, expandable, owner: 0, free_since: clock, ..rest.part(0, size) };
        let (segment, position) = (front.segment, front.position);
        let front = self.split_front_outside(id, 0, front);
        Ok(self.allocated_at(front, segment, position, size))
    }

    /// Splits the front off a free block of this owner. The rest stays outside the bins, so merging the front back soon
    /// changes no bin.
    #[inline(always)]
    pub(super) fn split_front_outside(&mut self, rest: BlockId, owner: Owner, front: Block) -> BlockId {
        self.free.of_owner_mut(owner, front.pool).put_outside(&mut self.blocks, rest);
        self.blocks.split_front(rest, front)
    }

    /// Describes a block that was allocated.
    #[inline(always)]
    pub(crate) fn allocated(&self, id: BlockId) -> AllocatedBlock {
        let Block { segment, position, size, .. } = self.blocks[id];
        self.allocated_at(id, segment, position, size)
    }

    /// Returns the streams other than its own that used a block.
    pub(crate) fn users_of(&self, id: BlockId) -> Vec<StreamId> {
        self.uses.streams(&self.blocks[id])
    }

    /// As [`allocated`](Self::allocated), for a block whose fields are already known.
    #[inline(always)]
    pub(super) fn allocated_at(&self, block: BlockId, segment: SegmentId, position: u64, size: u64) -> AllocatedBlock {
        let Segment { base, position: start, .. } = self.blocks.segment(segment);
        let offset = position.wrapping_sub(*start);
        AllocatedBlock { arena: self.arena, block, base: *base, offset, size }
    }

    /// Adds a new segment and allocates its front.
    pub(super) fn take_from_new_segment(
        &mut self,
        segment: Segment,
        request: &Request,
        clock: u32,
    ) -> Counting<AllocatedBlock> {
        self.has_had_huge |= segment.size >= Packed::HUGE;
        let id = self.blocks.add_segment(segment, State::Free);
        self.blocks[id].free_since = clock;
        self.free.list::<false>(&mut self.blocks, id);
        self.take_new(id, request, clock)
    }

    /// Allocates the front of a free block that was made for the request.
    pub(crate) fn take_new(&mut self, id: BlockId, request: &Request, clock: u32) -> Counting<AllocatedBlock> {
        let size = self.blocks[id].size;
        let fit =
            if self.private.whole { self.config.fit_whole(size) } else { self.config.fit_of_block(request, size) };
        self.take_block(id, request, fit, clock)
    }

    /// Counts a free block as allocated.
    #[inline(always)]
    fn count_taken(&mut self, id: BlockId, request: &Request, fit: Fit) -> Counting {
        let block = &self.blocks[id];
        let (whole, was_split) = (block.size, block.is_split());
        let bytes = if fit.splits { request.size } else { whole };
        let split = match (fit.splits, was_split) {
            _ if block.expandable => Pair::default(),
            (true, true) => Pair::new(0, -(bytes as i64)),
            (true, false) => Pair::new(1, (whole - bytes) as i64),
            (false, true) => Pair::new(-1, -(bytes as i64)),
            (false, false) => Pair::default(),
        };
        let Request { pool, requested, .. } = *request;
        self.counters.given_out(Counted { pool, bytes, requested, oversize: fit.oversize, split })
    }

    /// Makes a block free and merges it with its free neighbours. PyTorch: `free_block`.
    #[inline(always)]
    pub(super) fn make_free(&mut self, id: BlockId, clock: u32, count: Count) -> Counting {
        let Block { requested, previous, next, .. } = self.blocks[id];
        let free = (if_free(&self.blocks, previous), if_free(&self.blocks, next));
        self.count_freed(id, free, count)?;
        if let (_, Some(rest)) = free {
            self.blocks[rest].requested = requested;
        }
        self.list_free::<true>(id, 0, clock, free);
        Ok(())
    }

    /// Makes a block that is on no list free memory of this owner, merged with these free neighbours of the same owner.
    /// `since`: the time since which all of it has been free.
    #[inline(always)]
    pub(crate) fn list_free<const BEST_FIT: bool>(&mut self, id: BlockId, owner: Owner, since: u32, near: Neighbours) {
        if let (None, Some(rest)) = near
            && self.free.of_owner(owner, self.blocks[id].pool).is_outside(rest)
        {
            // Merge the block back into the one that it was split from. No list changes.
            self.blocks[rest].free_since = since;
            self.blocks.merge_previous(rest, id);
            return;
        }
        let block = &mut self.blocks[id];
        (block.state, block.owner, block.free_since) = (State::Free, owner, since);
        self.merge_with::<BEST_FIT>(id, near);
    }

    /// Merges a block that is on no list with these neighbours, and lists it.
    #[inline(always)]
    fn merge_with<const BEST_FIT: bool>(&mut self, id: BlockId, (before, behind): Neighbours) {
        if let Some(behind) = behind {
            self.free.unlist::<BEST_FIT>(&mut self.blocks, behind);
            self.blocks.merge_next(id, behind);
        }
        if let Some(before) = before {
            self.free.unlist::<BEST_FIT>(&mut self.blocks, before);
            self.blocks.merge_previous(id, before);
        }
        self.free.list::<BEST_FIT>(&mut self.blocks, id);
    }

    /// Counts a block that becomes free next to these free neighbours.
    #[inline(always)]
    fn count_freed(&mut self, id: BlockId, near: Neighbours, count: Count) -> Counting {
        let split = split_by_free(&self.blocks, id, near);
        let Block { pool, size, requested, .. } = self.blocks[id];
        let oversize = self.config.is_oversize(size);
        count(&mut self.counters, Counted { pool, bytes: size, requested, oversize, split })
    }

    /// Splits bytes off both ends of a block that is on no list, and lists the resulting blocks.
    pub(crate) fn split_ends(&mut self, id: BlockId, ahead: u64, behind: u64) {
        if ahead > 0 {
            let front = self.blocks[id].part(0, ahead);
            let front = self.blocks.split_front(id, front);
            self.free.list::<false>(&mut self.blocks, front);
        }
        if behind > 0 {
            let block = &self.blocks[id];
            let back = block.part(block.size - behind, behind);
            let back = self.blocks.split_back(id, back);
            self.free.list::<false>(&mut self.blocks, back);
        }
    }

    /// Gives a block that is on no list this state, merges it with its neighbours of the same state and owner, and
    /// lists it. For free memory with owners, [`list_free`](Self::list_free) also sets the time since which it is free.
    pub(crate) fn merge_and_list(&mut self, id: BlockId, state: State) {
        self.blocks[id].state = state;
        let alike = self.blocks.alike(id, state, self.blocks[id].owner);
        self.merge_with::<false>(id, alike);
    }

    /// Returns whether a new segment of this size gets positions that no other segment has had, or needs none.
    pub(crate) fn has_positions(&self, size: u64) -> bool {
        !self.free.is_by_position() || self.blocks.has_positions(size)
    }

    /// Removes a segment, all of whose blocks are listed.
    pub(crate) fn remove_segment(&mut self, id: SegmentId) {
        let blocks: Vec<BlockId> = self.blocks.of_segment(id).map(|(block, _)| block).collect();
        blocks.into_iter().for_each(|block| self.free.unlist::<false>(&mut self.blocks, block));
        self.blocks.remove_segment(id);
    }

    pub(crate) fn largest_free(&self, pool: PoolKind) -> u64 {
        self.free.largest(&self.blocks, pool)
    }
}

/// Returns by how much the free blocks that share their segment with others change if a block becomes free next to
/// these free neighbours.
#[inline(always)]
pub(super) fn split_by_free(blocks: &[Block], id: BlockId, (before, behind): Neighbours) -> Pair {
    let Block { size, expandable, mut previous, mut next, .. } = blocks[id];
    let mut merged = Pair::default();
    if let Some(block) = before.map(|before| &blocks[before]) {
        merged = merged + Pair::new(1, block.size as i64);
        previous = block.previous;
    }
    if let Some(block) = behind.map(|behind| &blocks[behind]) {
        merged = merged + Pair::new(1, block.size as i64);
        next = block.next;
    }
    match previous.is_some() || next.is_some() {
        // Free pages of expandable segments can always go back to the driver.
        _ if expandable => Pair::default(),
        true => Pair::new(1 - merged.0[0], size as i64),
        false => Pair::default() - merged,
    }
}
