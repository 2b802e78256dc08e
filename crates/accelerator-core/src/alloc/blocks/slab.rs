//! Vectors whose items have stable numbers.

#[cfg(debug_assertions)]
mod check;

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// A vector that reuses the slots of removed items. A removed item stays readable until its slot is reused, so its
/// number must not be kept.
#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    slots: Vec<T>,
    vacant: Vec<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<I: Id, T> Slab<I, T> {
    #[inline]
    pub(crate) fn insert(&mut self, thing: T) -> I {
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

    /// Grows by a quarter rather than doubling, because a million blocks take considerable memory.
    #[cold]
    fn grow(&mut self) {
        self.slots.reserve_exact((self.slots.len() / 4).max(64));
    }

    pub(crate) fn remove(&mut self, id: I) {
        self.vacant.push(id);
    }

    /// Returns all items, including removed ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
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

/// The number of an item in a slab.
pub(crate) trait Id: Copy {
    fn at(index: usize) -> Self;
    fn index(self) -> usize;
}

/// Numbers start at 1, so that an `Option` of one needs no extra space.
macro_rules! ids {
    ($($name:ident),*) => {
        $(
            /// The number of an item of this kind in its arena.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub(crate) struct $name(NonZeroU32);

            impl Id for $name {
                fn at(index: usize) -> Self {
                    Self(NonZeroU32::MIN.saturating_add(index as u32))
                }

                fn index(self) -> usize {
                    self.0.get() as usize - 1
                }
            }
        )*
    };
}

ids!(SegmentId, UseId);

impl SegmentId {
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_removed_things_are_used_again() {
        let mut slab: Slab<UseId, char> = Slab::default();
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
        let mut slab: Slab<UseId, u8> = Slab::default();
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
