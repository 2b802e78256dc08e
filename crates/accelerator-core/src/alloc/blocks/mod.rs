//! Segments and their blocks, identified by number. Blocks are split and merged only here.

mod base;
mod block;
#[cfg(debug_assertions)]
mod check;
mod free_list;
mod heap;
mod slab;
mod slots;
mod tree;
mod uses;
#[cfg(debug_assertions)]
mod visited;

use std::ops::{Deref, DerefMut};

pub(crate) use self::base::Base;
pub(crate) use self::block::{Block, Owner, PageRange, Segment, State};
#[cfg(debug_assertions)]
pub(crate) use self::check::Slot;
pub(crate) use self::free_list::FreeList;
pub(crate) use self::slab::{Id, SegmentId, Slab};
use self::slots::Slots;
pub(crate) use self::slots::{BlockId, SlotsMut, neighbour};
pub(crate) use self::uses::{CaptureNumber, User, Users, Uses};
#[cfg(debug_assertions)]
pub(crate) use self::visited::Visited;

/// Size, position and number. The number keeps any two blocks distinct even if positions have wrapped.
pub(crate) type Order = (u64, u64, BlockId);

/// The neighbours that a block merges with: the one before it, and the one behind it.
pub(crate) type Neighbours = (Option<BlockId>, Option<BlockId>);

/// Segments and blocks, usually those of one stream.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    blocks: Slots,
    segments: Slab<SegmentId, Segment>,
    /// The position of the next segment. It wraps after 16 EiB; best fit then no longer prefers older segments among
    /// blocks of equal size. Code that finds bytes by position calls [`has_positions`](Self::has_positions) before it
    /// adds a segment.
    next_position: u64,
}

impl Blocks {
    /// Returns whether a segment of this size would get positions that no other segment has had.
    pub(crate) fn has_positions(&self, size: u64) -> bool {
        self.next_position.checked_add(size).is_some()
    }

    /// Prepares memory for so many blocks.
    pub(crate) fn prepare(&mut self, count: usize) {
        self.blocks.add_vacant(count);
    }

    /// Adds a segment that is a single block in this state. The block is not added to any list.
    pub(crate) fn add_segment(&mut self, new: Segment, state: State) -> BlockId {
        let number = self.add_empty_segment(new);
        let segment = &self.segments[number];
        let block = Block { state, ..Block::new(number, segment, segment.position, segment.size) };
        let id = self.blocks.insert(block);
        self.segments[number].first = Some(id);
        id
    }

    /// Adds a segment without blocks.
    pub(crate) fn add_empty_segment(&mut self, new: Segment) -> SegmentId {
        let position = self.next_position;
        self.next_position = position.wrapping_add(new.size);
        self.segments.insert(Segment { position, ..new })
    }

    /// Removes a segment and its blocks, none of which may be on a list.
    pub(crate) fn remove_segment(&mut self, id: SegmentId) {
        let mut next = self.segments[id].first.take();
        while let Some(block) = next {
            next = self[block].next;
            self.blocks.remove(block);
        }
        self.segments.remove(id);
    }

    /// Returns the blocks, and the segments that they belong to.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (SlotsMut<'_>, &Slab<SegmentId, Segment>) {
        (self.blocks.borrow_mut(), &self.segments)
    }

    /// Adds a block with no neighbours to a segment made by [`add_empty_segment`](Self::add_empty_segment).
    pub(crate) fn add_alone(&mut self, block: Block) -> BlockId {
        self.blocks.insert(block)
    }

    pub(crate) fn remove_alone(&mut self, id: BlockId) {
        self.blocks.remove(id);
    }

    #[inline(always)]
    pub(crate) fn segment(&self, id: SegmentId) -> &Segment {
        &self.segments[id]
    }

    /// Returns the segments that have blocks.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let all = self.segments.iter().enumerate().map(|(place, segment)| (SegmentId::at(place), segment));
        all.filter(|(_, segment)| segment.first.is_some())
    }

    /// Returns the blocks of a segment, in address order.
    pub(crate) fn of_segment(&self, id: SegmentId) -> impl Iterator<Item = (BlockId, &Block)> {
        let ids = std::iter::successors(self.segments[id].first, |id| self[*id].next);
        ids.map(|id| (id, &self[id]))
    }

    /// Splits the first bytes off block `rest` as a new block `front`, which is a [part](Block::part) of it.
    #[inline(always)]
    pub(crate) fn split_front(&mut self, rest: BlockId, front: Block) -> BlockId {
        let Block { segment, previous, size, .. } = front;
        let id = self.blocks.insert(Block { next: Some(rest), ..front });
        let block = &mut self[rest];
        block.position = block.position.wrapping_add(size);
        block.size -= size;
        block.previous = Some(id);
        self.link(previous, segment, id);
        id
    }

    /// Splits the last bytes off block `front` as a new block `back`, which is a [part](Block::part) of it.
    pub(crate) fn split_back(&mut self, front: BlockId, back: Block) -> BlockId {
        let Block { size, next, .. } = back;
        let id = self.blocks.insert(Block { previous: Some(front), ..back });
        let block = &mut self[front];
        block.size -= size;
        block.next = Some(id);
        if let Some(next) = next {
            self[next].previous = Some(id);
        }
        id
    }

    /// Merges a block with the one before it, which must not be on a list.
    #[inline(always)]
    pub(crate) fn merge_previous(&mut self, id: BlockId, previous: BlockId) {
        let Block { segment, position, size, previous: before, .. } = self[previous];
        let block = &mut self[id];
        block.position = position;
        block.size += size;
        block.previous = before;
        self.link(before, segment, id);
        self.blocks.remove(previous);
    }

    /// Merges a block with the one after it, which must not be on a list.
    #[inline(always)]
    pub(crate) fn merge_next(&mut self, id: BlockId, next: BlockId) {
        self.blocks.borrow_mut().swallow(id, next);
    }

    /// Makes block `id` the successor of `previous`, or the first of its segment.
    #[inline(always)]
    fn link(&mut self, previous: Option<BlockId>, segment: SegmentId, id: BlockId) {
        match previous {
            Some(previous) => self[previous].next = Some(id),
            None => self.segments[segment].first = Some(id),
        }
    }

    /// Returns the start of a block as an address, as traces and snapshots show it.
    pub(crate) fn address(&self, id: BlockId) -> u64 {
        let Block { segment, position, .. } = self[id];
        let segment = &self.segments[segment];
        segment.base.address() + position.wrapping_sub(segment.position)
    }

    /// Returns the start of a page range as an address, as traces and snapshots show it.
    pub(crate) fn address_of(&self, pages: PageRange) -> u64 {
        self.segments[pages.segment].base.address() + pages.offset
    }

    /// Returns the neighbours of a block that have this state and this owner.
    #[inline(always)]
    pub(crate) fn alike(&self, id: BlockId, state: State, owner: Owner) -> Neighbours {
        let is_alike = |id: &BlockId| (self[*id].state, self[*id].owner) == (state, owner);
        let Block { previous, next, .. } = self[id];
        (previous.filter(is_alike), next.filter(is_alike))
    }
}

impl Deref for Blocks {
    type Target = [Block];

    #[inline(always)]
    fn deref(&self) -> &[Block] {
        &self.blocks
    }
}

impl DerefMut for Blocks {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Block] {
        &mut self.blocks
    }
}

/// Returns the block if there is one and it is free.
#[inline(always)]
pub(crate) fn if_free(blocks: &[Block], id: Option<BlockId>) -> Option<BlockId> {
    id.filter(|id| blocks[*id].state == State::Free)
}

/// Returns the sort key of free blocks, in PyTorch's order: smallest size, then older segment, then lowest address.
#[inline(always)]
pub(crate) fn order(blocks: &[Block], id: BlockId) -> Order {
    let block = &blocks[id];
    (block.size, block.position, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Blocks {
        /// Adds a free block in no segment, for tests that only look at sizes and positions.
        pub(crate) fn add_free(&mut self, size: u64, position: u64) -> BlockId {
            self.blocks.insert(Block { position, size, state: State::Free, ..Block::NONE })
        }
    }

    #[test]
    fn a_block_is_one_cache_line() {
        assert_eq!(size_of::<Block>(), 64);
    }
}
