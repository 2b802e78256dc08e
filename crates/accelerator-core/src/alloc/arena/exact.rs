//! Blocks at given places: allocation at an address, and setting segments back to an earlier state.

use super::store::{AllocatedBlock, Store};
use crate::alloc::blocks::{Block, BlockId, Segment, SegmentId, State};
use crate::alloc::settings::{Fit, MIN_BLOCK, Request};
use crate::alloc::stats::{Counting, StreamCounters};
use crate::types::PoolKind;

/// The blocks of a segment at one moment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentState {
    /// The number of the segment in the order of creation, which no other segment has.
    created: u64,
    pool: PoolKind,
    /// The blocks that have memory, in address order.
    blocks: Vec<BlockState>,
}

#[derive(Clone, Copy, Debug)]
struct BlockState {
    /// The byte offset from the start of the segment.
    offset: u64,
    size: u64,
    is_allocated: bool,
}

impl BlockState {
    fn end(&self) -> u64 {
        self.offset + self.size
    }
}

impl Store {
    /// Allocates the block that begins at this address, out of one free block, and the part before it, which is to be
    /// [given back](Self::give_back_front). The caller has all headroom in hand. PyTorch: `get_free_block_at`.
    pub(crate) fn take_at(
        &mut self,
        address: u64,
        request: &Request,
        clock: u32,
    ) -> Counting<Option<(AllocatedBlock, Option<BlockId>)>> {
        let mut segments = self.blocks.segments();
        let at = segments.find_map(|(id, segment)| {
            let offset = address.checked_sub(segment.base.address())?;
            let may_begin = offset < segment.size && offset.is_multiple_of(MIN_BLOCK);
            (segment.pool == request.pool && may_begin).then_some((id, offset))
        });
        drop(segments);
        let Some((segment, offset)) = at else { return Ok(None) };
        let Some((free, ahead)) = self.free_at(segment, offset, request.size) else { return Ok(None) };
        let (front, id) = self.cut_off(free, ahead, request.pool, clock)?;
        Ok(Some((self.take_new(id, request, clock)?, front)))
    }

    /// Makes the part before a block free, which was allocated with it.
    pub(crate) fn give_back_front(&mut self, front: BlockId, clock: u32) -> Counting {
        self.make_free(front, clock, StreamCounters::freed)
    }

    /// Returns the free block that contains these bytes of a segment, and how many bytes of it are ahead of them.
    fn free_at(&self, segment: SegmentId, offset: u64, size: u64) -> Option<(BlockId, u64)> {
        let start = self.blocks.segment(segment).position;
        let mut free = self.blocks.of_segment(segment).filter(|(_, block)| block.state == State::Free);
        free.find_map(|(id, block)| {
            let ahead = offset.checked_sub(block.position.wrapping_sub(start))?;
            (ahead.checked_add(size)? <= block.size).then_some((id, ahead))
        })
    }

    /// Allocates the first `ahead` bytes of a free block, if there are any. Returns that block, and the free rest.
    fn cut_off(
        &mut self,
        free: BlockId,
        ahead: u64,
        pool: PoolKind,
        clock: u32,
    ) -> Counting<(Option<BlockId>, BlockId)> {
        if ahead == 0 {
            return Ok((None, free));
        }
        let front = self.take_exactly(free, ahead, pool, clock)?.block;
        let rest = self.blocks[front].next;
        Ok((Some(front), rest.unwrap_or_else(|| unreachable!("the rest follows the part that was cut off"))))
    }

    /// Allocates the first `size` bytes of a free block.
    fn take_exactly(&mut self, free: BlockId, size: u64, pool: PoolKind, clock: u32) -> Counting<AllocatedBlock> {
        let fit = Fit { splits: size < self.blocks[free].size, oversize: self.config.is_oversize(size) };
        self.take_block(free, &Request { requested: size, size, pool }, fit, clock)
    }

    /// Returns the state of all segments.
    pub(crate) fn state(&self) -> Vec<SegmentState> {
        let state = |(id, segment): (SegmentId, &Segment)| {
            let with_memory = self.blocks.of_segment(id).filter(|(_, block)| block.state != State::Unmapped);
            let block = |(_, block): (_, &Block)| BlockState {
                offset: block.position.wrapping_sub(segment.position),
                size: block.size,
                is_allocated: block.state == State::Allocated,
            };
            let (created, pool) = (segment.created, segment.pool);
            SegmentState { created, pool, blocks: with_memory.map(block).collect() }
        };
        self.blocks.segments().map(state).collect()
    }

    /// Returns whether the segments of this state still have all of its memory.
    pub(crate) fn has_memory_of(&self, state: &[SegmentState]) -> bool {
        state.iter().all(|old| {
            let Some(id) = self.find(old) else { return old.blocks.is_empty() };
            let start = self.blocks.segment(id).position;
            let unmapped = self.blocks.of_segment(id).filter(|(_, block)| block.state == State::Unmapped);
            let mut gone = unmapped.map(|(_, block)| {
                let offset = block.position.wrapping_sub(start);
                offset..offset + block.size
            });
            gone.all(|gone| old.blocks.iter().all(|block| block.end() <= gone.start || gone.end <= block.offset))
        })
    }

    /// Divides the segments into the blocks that they had in this state, of which those that were allocated are
    /// allocated again. The caller has all headroom in hand. Returns the allocated blocks; `None`, with nothing
    /// changed, unless all of their memory is free. PyTorch: `setSegmentStateToCheckpoint`.
    pub(crate) fn set_to(&mut self, state: &[SegmentState], clock: u32) -> Counting<Option<Vec<AllocatedBlock>>> {
        if !state.iter().all(|old| self.is_free(old)) {
            return Ok(None);
        }
        let mut allocated = Vec::new();
        for old in state {
            let Some(segment) = self.find(old) else { continue };
            let mut unused = Vec::new();
            for block in &old.blocks {
                let free = self.free_at(segment, block.offset, block.size);
                let (free, ahead) = free.unwrap_or_else(|| unreachable!("all of its memory is free"));
                // Pages ahead of it may have had no memory then.
                let (gap, free) = self.cut_off(free, ahead, old.pool, clock)?;
                unused.extend(gap);
                let taken = self.take_exactly(free, block.size, old.pool, clock)?;
                if block.is_allocated { allocated.push(taken) } else { unused.push(taken.block) }
            }
            for block in unused {
                self.make_free(block, clock, StreamCounters::freed)?;
            }
        }
        Ok(Some(allocated))
    }

    /// Returns whether the memory of these blocks is free.
    fn is_free(&self, state: &SegmentState) -> bool {
        let Some(segment) = self.find(state) else { return state.blocks.is_empty() };
        state.blocks.iter().all(|block| self.free_at(segment, block.offset, block.size).is_some())
    }

    fn find(&self, state: &SegmentState) -> Option<SegmentId> {
        self.blocks.segments().find(|(_, segment)| segment.created == state.created).map(|(id, _)| id)
    }
}
