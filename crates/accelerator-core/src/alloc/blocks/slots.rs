//! The blocks of an arena, by number.

#[cfg(debug_assertions)]
mod check;

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::{Deref, DerefMut, Index, IndexMut};

use super::block::{Block, State};
use super::uses::Used;
use crate::types::PoolKind;

/// The number of a block in its arena. It is never 0, so that an `Option` of one needs no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockId(NonZeroU32);

impl BlockId {
    pub(crate) const fn get(self) -> NonZeroU32 {
        self.0
    }

    /// Returns the number in the lower half of a word, which has one there.
    #[inline(always)]
    pub(crate) fn of_lower_half(word: NonZeroU64) -> Self {
        Self(NonZeroU32::new(word.get() as u32).unwrap_or(NonZeroU32::MIN)) // never 0
    }
}

/// Blocks by number. The numbers of removed blocks are used again. A removed block stays readable until then, so its
/// number must not be kept.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The first one is [`Block::NONE`], so that a link to a neighbour is written without a check whether there is one.
    slots: Vec<Block>,
    vacant: Vacant,
}

/// The slot that was vacated last. Each vacant slot links the one before with [`Block::below`].
type Vacant = Option<BlockId>;

/// All blocks, borrowed in a form that stays in registers while blocks change.
pub(crate) struct SlotsMut<'a> {
    slots: &'a mut [Block],
    vacant: &'a mut Vacant,
}

impl Default for Slots {
    fn default() -> Self {
        Self { slots: vec![Block::NONE], vacant: None }
    }
}

impl Slots {
    #[inline(always)]
    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        if self.vacant.is_none() {
            self.add();
        }
        let id = self.vacant.unwrap_or_else(|| unreachable!("a slot was added"));
        self.vacant = self[id].below[0];
        self[id] = block;
        id
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: BlockId) {
        let vacated = self.vacant.replace(id);
        self[id].below[0] = vacated;
    }

    #[inline(always)]
    pub(super) fn borrow_mut(&mut self) -> SlotsMut<'_> {
        SlotsMut { slots: &mut self.slots, vacant: &mut self.vacant }
    }

    /// Adds vacant slots. They grow by a quarter rather than doubling, because a million blocks take considerable
    /// memory.
    #[cold]
    #[inline(never)]
    fn add(&mut self) {
        self.add_vacant((self.slots.len() / 4).max(64));
    }

    /// Adds so many vacant slots, after which the lowest number is the next.
    pub(super) fn add_vacant(&mut self, more: usize) {
        let len = self.slots.len();
        self.slots.reserve_exact(more);
        self.slots.resize(len + more, Block::NONE);
        for number in (len..len + more).rev() {
            self.remove(BlockId(NonZeroU32::MIN.saturating_add(number as u32 - 1)));
        }
    }
}

impl SlotsMut<'_> {
    /// Returns the slot that was vacated last.
    #[inline(always)]
    pub(crate) fn vacant(&self) -> Option<BlockId> {
        *self.vacant
    }

    /// Shortens a block that is on no list to its first bytes. The rest becomes a free block in the slot that was
    /// [vacated](Self::vacant) last. `pool` and `expandable` are those of the block, which callers know as constants.
    #[inline(always)]
    pub(crate) fn cut(
        &mut self,
        id: BlockId,
        rest: BlockId,
        size: u64,
        (pool, expandable): (PoolKind, bool),
        clock: impl Fn() -> u32,
    ) {
        debug_assert_eq!(*self.vacant, Some(rest));
        *self.vacant = self.slots[rest].below[0];
        let Block { position, size: whole, requested, segment, next, .. } = self.slots[id];
        let behind = &mut self.slots[rest];
        // Each field by itself: copied blocks go through the stack, and what was written in pieces is slow to read. The
        // links of lists are set when the block is listed.
        behind.position = position.wrapping_add(size);
        behind.size = whole - size;
        behind.requested = requested;
        behind.segment = segment;
        behind.pool = pool;
        behind.expandable = expandable;
        behind.state = State::Free;
        behind.previous = Some(id);
        behind.next = next;
        behind.child = None;
        behind.uses = Used::BY_NONE;
        behind.free_since = clock();
        behind.owner = 0;
        neighbour_mut(self.slots, next).previous = Some(rest);
        let block = &mut self.slots[id];
        (block.size, block.next) = (size, Some(rest));
    }

    /// Extends a block over the one after it, which must not be on a list.
    #[inline(always)]
    pub(crate) fn swallow(&mut self, id: BlockId, next: BlockId) {
        let Block { size, next: behind, .. } = self.slots[next];
        let block = &mut self.slots[id];
        block.size += size;
        block.next = behind;
        neighbour_mut(self.slots, behind).previous = Some(id);
        self.slots[next].below[0] = self.vacant.replace(next);
    }
}

/// Returns a neighbour, or [`Block::NONE`].
#[inline(always)]
pub(crate) fn neighbour(slots: &[Block], id: Option<BlockId>) -> &Block {
    &slots[number(id)]
}

/// As [`neighbour`]. What is written to `Block::NONE` has no effect: only its size is read.
#[inline(always)]
fn neighbour_mut(slots: &mut [Block], id: Option<BlockId>) -> &mut Block {
    &mut slots[number(id)]
}

#[inline(always)]
fn number(id: Option<BlockId>) -> usize {
    id.map_or(0, |id| id.0.get() as usize)
}

impl Index<BlockId> for [Block] {
    type Output = Block;

    #[inline(always)]
    fn index(&self, id: BlockId) -> &Block {
        &self[id.0.get() as usize]
    }
}

impl IndexMut<BlockId> for [Block] {
    #[inline(always)]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self[id.0.get() as usize]
    }
}

impl Deref for Slots {
    type Target = [Block];

    #[inline(always)]
    fn deref(&self) -> &[Block] {
        &self.slots
    }
}

impl DerefMut for Slots {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Block] {
        &mut self.slots
    }
}

impl Deref for SlotsMut<'_> {
    type Target = [Block];

    #[inline(always)]
    fn deref(&self) -> &[Block] {
        self.slots
    }
}

impl DerefMut for SlotsMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Block] {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_removed_blocks_are_used_again() {
        let mut slots = Slots::default();
        let sized = |size| Block { size, ..Block::NONE };
        let [a, b, c] = [1, 2, 3].map(|size| slots.insert(sized(size)));
        slots.remove(a);
        slots.remove(c);
        let (d, e, f) = (slots.insert(sized(4)), slots.insert(sized(5)), slots.insert(sized(6)));
        assert_eq!((d, e), (c, a));
        assert_eq!([b, d, e, f].map(|id| slots[id].size), [2, 4, 5, 6]);
        assert_eq!((neighbour(&slots, None).size, f.get().get()), (0, 4));
    }

    #[test]
    fn memory_for_many_blocks_grows_by_a_quarter() {
        let mut slots = Slots::default();
        let mut grown = Vec::new();
        for number in 1..100_000 {
            let before = slots.slots.capacity();
            assert_eq!(slots.insert(Block::NONE).get().get(), number);
            if slots.slots.capacity() != before {
                grown.push((before, slots.slots.capacity()));
            }
        }
        assert!(grown.iter().all(|(before, after)| *after == before + (before / 4).max(64)), "{grown:?}");
        assert!((20..50).contains(&grown.len()), "{grown:?}");
    }
}
