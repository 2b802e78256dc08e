//! Lists of free blocks, and of address space without memory.

#[cfg(debug_assertions)]
mod check;

use std::collections::BTreeMap;

use super::by_position::ByPosition;
use crate::alloc::blocks::{Block, BlockId, Blocks, FreeList, Owner, SegmentId, State};
use crate::types::PoolKind;

/// The lists of a store: a free list for each pool of each owner, and the unmapped blocks.
#[derive(Debug, Default)]
pub(crate) struct FreeLists {
    /// The lists of owner 0. Most stores have no others.
    first: [FreeList; 2],
    others: Vec<[FreeList; 2]>,
    /// The unmapped blocks of each pool, by position.
    unmapped: [BTreeMap<u64, BlockId>; 2],
    /// The free blocks of the large pool, in stores that look up bytes by position. Splitting off the front of a block
    /// changes nothing here.
    by_position: Option<ByPosition>,
}

impl FreeLists {
    /// Creates lists in which free bytes can be found [by position](Self::at).
    pub(crate) fn by_position() -> Self {
        Self { by_position: Some(ByPosition::default()), ..Self::default() }
    }

    /// Returns the free list of owner 0.
    #[inline(always)]
    pub(crate) fn of(&self, pool: PoolKind) -> &FreeList {
        &self.first[pool as usize]
    }

    /// Returns the free list of owner 0, of the large pool or of the small one.
    #[inline(always)]
    pub(crate) fn of_pool<const LARGE: bool>(&mut self) -> &mut FreeList {
        &mut self.first[usize::from(LARGE)]
    }

    #[inline(always)]
    pub(crate) fn of_owner(&self, owner: Owner, pool: PoolKind) -> &FreeList {
        match owner.checked_sub(1) {
            None => self.of(pool),
            Some(other) => &self.others[usize::from(other)][pool as usize],
        }
    }

    #[inline(always)]
    pub(crate) fn of_owner_mut(&mut self, owner: Owner, pool: PoolKind) -> &mut FreeList {
        match owner.checked_sub(1) {
            None => &mut self.first[pool as usize],
            Some(other) => &mut self.others[usize::from(other)][pool as usize],
        }
    }

    /// Creates the lists of an owner, and of those numbered below it.
    pub(crate) fn add_owner(&mut self, owner: Owner) {
        let others = self.others.len().max(usize::from(owner));
        self.others.resize_with(others, Default::default);
    }

    pub(crate) fn unmapped(&self, pool: PoolKind) -> &BTreeMap<u64, BlockId> {
        &self.unmapped[pool as usize]
    }

    /// Returns the size of the largest free block of a pool; 0 if there is none.
    pub(crate) fn largest(&self, blocks: &Blocks, pool: PoolKind) -> u64 {
        let all = std::iter::once(&self.first).chain(&self.others);
        let largest = all.filter_map(|lists| lists[pool as usize].largest(blocks));
        largest.map(|id| blocks[id].size).max().unwrap_or(0)
    }

    pub(crate) fn is_by_position(&self) -> bool {
        self.by_position.is_some()
    }

    /// Returns the free block of the large pool that contains the byte at a position, if any.
    pub(crate) fn at(&self, blocks: &Blocks, position: u64) -> Option<BlockId> {
        self.by_position.as_ref()?.at(blocks, position)
    }

    /// As [`at`](Self::at), for a position in this segment.
    #[inline(always)]
    pub(crate) fn at_in(&self, blocks: &Blocks, segment: SegmentId, position: u64) -> Option<BlockId> {
        self.by_position.as_ref()?.at_in(blocks, segment, position)
    }

    /// Calls the function for each free block of the large pool, by position.
    pub(crate) fn for_each(&self, blocks: &Blocks, each: impl FnMut(BlockId)) {
        if let Some(by_position) = &self.by_position {
            by_position.for_each(blocks, each);
        }
    }

    /// Lists a free or unmapped block.
    ///
    /// `BEST_FIT`, here and below: whether the block is free, there is one owner, and no bytes are looked up by
    /// position. Run-time checks would cost the warm path instructions.
    #[inline(always)]
    pub(crate) fn list<const BEST_FIT: bool>(&mut self, blocks: &mut Blocks, id: BlockId) {
        let Block { pool, position, state, owner, .. } = blocks[id];
        if !BEST_FIT && state == State::Unmapped {
            self.unmapped[pool as usize].insert(position, id);
            return;
        }
        self.of_owner_mut(if BEST_FIT { 0 } else { owner }, pool).insert(blocks, id);
        if let (false, PoolKind::Large, Some(by_position)) = (BEST_FIT, pool, &mut self.by_position) {
            by_position.insert(blocks, id);
        }
    }

    /// Removes a block from its list.
    #[inline(always)]
    pub(crate) fn unlist<const BEST_FIT: bool>(&mut self, blocks: &mut Blocks, id: BlockId) {
        let Block { pool, position, state, owner, .. } = blocks[id];
        if !BEST_FIT && state == State::Unmapped {
            self.unmapped[pool as usize].remove(&position);
            return;
        }
        self.of_owner_mut(if BEST_FIT { 0 } else { owner }, pool).remove(blocks, id);
        if let (false, PoolKind::Large, Some(by_position)) = (BEST_FIT, pool, &mut self.by_position) {
            by_position.remove(blocks, id);
        }
    }
}
