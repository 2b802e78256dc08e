//! A check of all lists of a store.

use super::FreeLists;
use crate::alloc::blocks::{Block, Blocks, State, Visited};
use crate::types::PoolKind;

impl FreeLists {
    /// Returns which blocks are in a list of free ones, and which in one of unmapped ones.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(in crate::alloc::arena) fn check(&self, blocks: &Blocks) -> Visited<State> {
        let mut visited = Visited::none_of(blocks);
        // The numbers come second, so that none beyond the last owner's is made, which would overflow.
        for (lists, owner) in std::iter::once(&self.first).chain(&self.others).zip(0..) {
            for pool in [PoolKind::Small, PoolKind::Large] {
                lists[pool as usize].check(blocks, |id| {
                    visited.visit(id, State::Free);
                    let block = &blocks[id];
                    assert_eq!((block.owner, block.pool), (owner, pool), "{id:?}: the list of its owner and pool");
                });
            }
        }
        for pool in [PoolKind::Small, PoolKind::Large] {
            for (key, id) in self.unmapped(pool) {
                visited.visit(*id, State::Unmapped);
                let Block { pool: own, position, .. } = blocks[*id];
                assert_eq!((own, position), (pool, *key), "{id:?}: its place among unmapped blocks");
            }
        }
        visited
    }

    /// Compares the tables of free blocks by position, if there are any, with the blocks, whose links are right.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(in crate::alloc::arena) fn check_positions(&self, blocks: &Blocks) {
        if let Some(by_position) = &self.by_position {
            by_position.check(blocks);
        }
    }
}
