//! Segments, and the blocks that they are cut into, by number.

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::{Index, IndexMut};

use super::compact::Owner;
use crate::backend::DevicePtr;
use crate::types::{PoolKind, StreamId};

/// A part of a segment: one cache line.
#[derive(Debug)]
pub(super) struct Block {
    /// Where it starts, in bytes, if the stream's segments lay one behind the other in the order in which they were made. One
    /// number thus has PyTorch's order of equal blocks: older segment, then lower address.
    pub(super) position: u64,
    pub(super) size: u64,
    /// Bytes asked for; of a free block, by the last request that it served.
    pub(super) requested: u64,
    pub(super) segment: SegmentId,
    pub(super) pool: PoolKind,
    /// Whether it is part of an expandable segment.
    pub(super) expandable: bool,
    pub(super) state: State,
    /// The block before it in its segment.
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    /// While it is among free blocks of about its size: below it in their tree, those ordered before it and behind it.
    pub(super) below: [Option<BlockId>; 2],
    /// The first of the streams beside its own that used it since it was allocated.
    pub(super) uses: Option<UseId>,
    /// The pool's clock when the block became free, for garbage collection; under the policy `compact` the epoch of its owner.
    pub(super) free_since: u32,
    /// Under the policy `compact`, whose work may use its bytes.
    pub(super) owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Allocated,
    /// Freed, with this many uses by other streams not known to be over.
    Pending(u32),
    /// Address space without memory, of an expandable segment.
    Unmapped,
    /// Its bytes are in use at another address, or held for that.
    Aliased,
}

impl Block {
    /// A free block that is on no list and has no neighbours.
    pub(super) fn new<P>(segment: SegmentId, of: &Segment<P>, position: u64, size: u64) -> Self {
        Self {
            position,
            size,
            requested: 0,
            segment,
            pool: of.pool,
            expandable: of.page.is_some(),
            state: State::Free,
            previous: None,
            next: None,
            below: [None; 2],
            uses: None,
            free_since: 0,
            owner: 0,
        }
    }

    /// Whether it shares its segment with other blocks.
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }
}

/// One driver allocation, or one reservation of address space.
#[derive(Debug)]
pub(super) struct Segment<P> {
    pub(super) ptr: P,
    pub(super) size: u64,
    /// Its number in the order in which the device's segments were made.
    pub(super) created: u64,
    /// Where it starts, as positions of blocks go.
    pub(super) position: u64,
    pub(super) pool: PoolKind,
    /// Bytes of a page, if it is expandable: its memory comes and goes by whole pages.
    pub(super) page: Option<NonZeroU64>,
    /// The block at its start; `None`: the segment is gone.
    pub(super) first: Option<BlockId>,
}

/// A stream that used a block.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) stream: StreamId,
    /// The next of the block's.
    pub(super) next: Option<UseId>,
}

/// Size and position; and the number, so that no two blocks are equal even where positions have wrapped.
pub(super) type Order = (u64, u64, BlockId);

/// Segments and blocks of one stream.
#[derive(Debug)]
pub(super) struct Blocks<P> {
    pub(super) blocks: Slab<BlockId, Block>,
    pub(super) segments: Slab<SegmentId, Segment<P>>,
    /// Where the next segment starts. Wraps after 16 EiB, and then equal blocks of older segments are given out last; the policy
    /// `compact`, which finds bytes by where they are, asks [`has_positions`](Self::has_positions) before.
    pub(super) next_position: u64,
}

impl<P> Blocks<P> {
    pub(super) fn new() -> Self {
        Self { blocks: Slab::new(), segments: Slab::new(), next_position: 0 }
    }

    /// Whether a segment of so many bytes gets positions that no other has had.
    pub(super) fn has_positions(&self, size: u64) -> bool {
        self.next_position.checked_add(size).is_some()
    }

    /// Makes a segment, the `created`th of the device, of one block.
    pub(super) fn add_segment(
        &mut self,
        ptr: P,
        size: u64,
        created: u64,
        pool: PoolKind,
        page: Option<NonZeroU64>,
    ) -> BlockId {
        let number = self.add_empty_segment(ptr, size, created, pool, page);
        let position = self.segments[number].position;
        let id = self.blocks.insert(Block::new(number, &self.segments[number], position, size));
        self.segments[number].first = Some(id);
        id
    }

    /// Makes a segment without blocks.
    pub(super) fn add_empty_segment(
        &mut self,
        ptr: P,
        size: u64,
        created: u64,
        pool: PoolKind,
        page: Option<NonZeroU64>,
    ) -> SegmentId {
        let position = self.next_position;
        self.next_position = position.wrapping_add(size);
        self.segments.insert(Segment { ptr, size, created, position, pool, page, first: None })
    }

    /// What free blocks are ordered by, as PyTorch's are: smallest size, then older segment, then lowest address.
    #[inline(always)]
    pub(super) fn order(&self, id: BlockId) -> Order {
        let block = &self[id];
        (block.size, block.position, id)
    }

    /// Makes a block the one behind `previous`, or the first of its segment.
    #[inline(always)]
    pub(super) fn link(&mut self, previous: Option<BlockId>, segment: SegmentId, id: BlockId) {
        match previous {
            Some(previous) => self[previous].next = Some(id),
            None => self.segments[segment].first = Some(id),
        }
    }

    /// Where a block starts.
    #[inline(always)]
    pub(super) fn ptr(&self, block: &Block) -> P
    where
        P: DevicePtr,
    {
        let segment = &self.segments[block.segment];
        segment.ptr.offset(block.position.wrapping_sub(segment.position))
    }
}

impl<P> Index<BlockId> for Blocks<P> {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id]
    }
}

impl<P> IndexMut<BlockId> for Blocks<P> {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id]
    }
}

/// Things by number. The numbers of removed things are used again; until then a removed thing is still there, and whoever
/// has its number is to know better.
#[derive(Debug)]
pub(super) struct Slab<I, T> {
    slots: Vec<T>,
    vacant: Vec<I>,
}

impl<I: Id, T> Slab<I, T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }

    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> I {
        if let Some(id) = self.vacant.pop() {
            self[id] = thing;
            return id;
        }
        if self.slots.len() == self.slots.capacity() {
            self.grow();
        }
        self.slots.push(thing);
        I::at(self.slots.len() - 1)
    }

    /// By a quarter, not by as much again: memory for a million blocks is something.
    #[cold]
    fn grow(&mut self) {
        self.slots.reserve_exact((self.slots.len() / 4).max(64));
    }

    pub(super) fn remove(&mut self, id: I) {
        self.vacant.push(id);
    }

    /// All of them, also removed ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter()
    }
}

impl<I: Id, T> Index<I> for Slab<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.slots[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.slots[id.index()]
    }
}

/// The number of a thing in a slab.
pub(super) trait Id: Copy {
    fn at(index: usize) -> Self;
    fn index(self) -> usize;
}

/// A number from 1, so that none takes no room of its own.
macro_rules! id {
    ($(#[$what:meta])* $name:ident) => {
        $(#[$what])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $name(NonZeroU32);

        impl Id for $name {
            fn at(index: usize) -> Self {
                Self(NonZeroU32::MIN.saturating_add(index as u32))
            }

            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }
    };
}

id!(
    /// The number of a block in its arena.
    BlockId
);
id!(
    /// The number of a segment in its arena.
    SegmentId
);
id!(
    /// The number of a use in its arena.
    UseId
);

#[cfg(test)]
mod tests {
    use super::*;

    impl<P> Blocks<P> {
        /// A free block in no segment, for tests of those who look only at sizes and positions.
        pub(in crate::alloc) fn add_free(&mut self, size: u64, position: u64) -> BlockId {
            self.blocks.insert(Block {
                position,
                size,
                requested: 0,
                segment: SegmentId::at(0),
                pool: PoolKind::Small,
                expandable: false,
                state: State::Free,
                previous: None,
                next: None,
                below: [None; 2],
                uses: None,
                free_since: 0,
                owner: 0,
            })
        }
    }

    #[test]
    fn a_block_is_one_cache_line() {
        assert_eq!(size_of::<Block>(), 64);
    }

    #[test]
    fn numbers_of_removed_things_are_used_again() {
        let mut slab: Slab<UseId, char> = Slab::new();
        let [a, b, c] = ['a', 'b', 'c'].map(|thing| slab.insert(thing));
        assert_eq!([a, b, c].map(Id::index), [0, 1, 2]);
        slab.remove(a);
        slab.remove(c);
        let (d, e, f) = (slab.insert('d'), slab.insert('e'), slab.insert('f'));
        assert!([[a, c], [c, a]].contains(&[d, e]), "{d:?} {e:?}");
        assert_eq!(f.index(), 3);
        assert_eq!([b, d, e, f].map(|id| slab[id]), ['b', 'd', 'e', 'f']);
        assert_eq!(slab.iter().count(), 4);
        slab[b] = 'g';
        assert_eq!(slab[b], 'g');
    }

    #[test]
    fn memory_for_many_things_grows_by_a_quarter() {
        let mut slab: Slab<UseId, u8> = Slab::new();
        assert_eq!(slab.slots.capacity(), 0);
        let mut grown = Vec::new();
        for number in 0..100_000 {
            let before = slab.slots.capacity();
            assert_eq!(slab.insert(0).index(), number);
            if slab.slots.capacity() != before {
                grown.push((before, slab.slots.capacity()));
            }
        }
        assert!(grown.iter().all(|(before, after)| *after == before + (before / 4).max(64)), "{grown:?}");
        assert!((20..50).contains(&grown.len()), "{grown:?}");
    }
}
