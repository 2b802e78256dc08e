//! The slots that a check of the whole arena has come to.

use std::fmt::Debug;
use std::num::NonZeroU64;

use super::{Block, BlockId};

/// The slots that a check has come to, and as what. It comes to each at most once, so it ends, whatever the links are.
pub(crate) struct Visited<T>(Vec<Option<T>>);

impl<T: Copy + Debug> Visited<T> {
    pub(crate) fn none_of(slots: &[Block]) -> Self {
        Self(vec![None; slots.len()])
    }

    /// Notes that the check has come to a slot. Called before the slot is read, since the number may be of none.
    ///
    /// # Panics
    /// If there is no such slot, or the check has come to it before.
    pub(crate) fn visit(&mut self, id: BlockId, as_what: T) {
        let count = self.0.len();
        let Some(visited) = self.0.get_mut(id.get().get() as usize) else {
            unreachable!("{as_what:?}: {id:?} is of no slot, since there are {count}");
        };
        let before = visited.replace(as_what);
        assert!(before.is_none(), "{as_what:?}: {id:?} is {before:?} as well, or twice the same");
    }

    pub(crate) fn get(&self, id: BlockId) -> Option<T> {
        self.0[id.get().get() as usize]
    }

    /// Returns all slots but that of [`Block::NONE`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, Option<T>)> {
        let numbered = (1..).map_while(NonZeroU64::new).map(BlockId::of_lower_half);
        numbered.zip(self.0.iter().skip(1).copied())
    }
}
