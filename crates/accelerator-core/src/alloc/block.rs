//! Blocks and segments by number.

use std::ops::{Index, IndexMut};

use crate::types::{PoolKind, StreamId};

/// The number of a block in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId(u32);

impl BlockId {
    pub(super) const FIRST: Self = Self(0);
}

/// The number of a segment in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentId(u32);

/// A part of a segment.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) segment: SegmentId,
    pub(super) state: State,
    /// Bytes from the start of the segment.
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Bytes asked for; of a free block, by the last request that it served.
    pub(super) requested: u64,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    /// The pool's clock when the block became free, for garbage collection.
    pub(super) free_since: u64,
    /// Streams beside its own that used it since it was allocated.
    pub(super) uses: Vec<StreamId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Allocated,
    /// Freed, with this many uses by other streams not known to be over.
    Pending(u32),
}

impl Block {
    /// Whether it shares its segment with other blocks.
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }
}

/// One driver allocation.
#[derive(Debug)]
pub(super) struct Segment<P> {
    pub(super) ptr: P,
    pub(super) size: u64,
    /// Its number in the order in which the device's segments were made.
    pub(super) created: u64,
    pub(super) pool: PoolKind,
    /// The block at its start.
    pub(super) first: BlockId,
}

/// Things by number; the numbers of removed things are used again.
#[derive(Debug)]
pub(super) struct Slab<I, T> {
    slots: Vec<Option<T>>,
    vacant: Vec<I>,
}

impl<I: Id, T> Slab<I, T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }

    pub(super) fn insert(&mut self, thing: T) -> I {
        if let Some(id) = self.vacant.pop() {
            self.slots[id.index()] = Some(thing);
            return id;
        }
        self.slots.push(Some(thing));
        I::at(self.slots.len() - 1)
    }

    pub(super) fn remove(&mut self, id: I) -> Option<T> {
        let thing = self.slots.get_mut(id.index())?.take();
        self.vacant.extend(thing.is_some().then_some(id));
        thing
    }

    pub(super) fn get(&self, id: I) -> Option<&T> {
        self.slots.get(id.index())?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((I::at(index), slot.as_ref()?)))
    }
}

impl<I: Id, T> Index<I> for Slab<I, T> {
    type Output = T;

    /// # Panics
    /// If the thing was removed: the arena's own bookkeeping would be broken then.
    fn index(&self, id: I) -> &T {
        match &self.slots[id.index()] {
            Some(thing) => thing,
            None => unreachable!("{} was removed", id.index()),
        }
    }
}

impl<I: Id, T> IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        match &mut self.slots[id.index()] {
            Some(thing) => thing,
            None => unreachable!("{} was removed", id.index()),
        }
    }
}

/// The number of a thing in a slab.
pub(super) trait Id: Copy {
    fn at(index: usize) -> Self;
    fn index(self) -> usize;
}

impl Id for BlockId {
    fn at(index: usize) -> Self {
        Self(index as u32)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Id for SegmentId {
    fn at(index: usize) -> Self {
        Self(index as u32)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}
