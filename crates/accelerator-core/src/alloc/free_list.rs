//! The free blocks of one pool of one stream, in the order in which best fit looks at them.

use std::collections::BTreeSet;

use super::block::BlockId;

/// A free block, ordered as PyTorch's pools order theirs: smallest size, then older segment, then lowest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeBlock {
    pub(super) size: u64,
    /// The number of its segment in the order of creation.
    pub(super) created: u64,
    /// Bytes from the start of its segment.
    pub(super) offset: u64,
    pub(super) block: BlockId,
}

/// The free blocks of one pool of one stream.
#[derive(Debug, Default)]
pub(super) struct FreeList(BTreeSet<FreeBlock>);

impl FreeList {
    pub(super) fn insert(&mut self, block: FreeBlock) {
        self.0.insert(block);
    }

    pub(super) fn remove(&mut self, block: &FreeBlock) {
        self.0.remove(block);
    }

    /// The first block of at least `size` bytes.
    pub(super) fn best_fit(&self, size: u64) -> Option<FreeBlock> {
        self.0.range(FreeBlock { size, created: 0, offset: 0, block: BlockId::FIRST }..).next().copied()
    }

    /// The largest block under `size` bytes.
    pub(super) fn largest_below(&self, size: u64) -> Option<FreeBlock> {
        self.0.range(..FreeBlock { size, created: 0, offset: 0, block: BlockId::FIRST }).next_back().copied()
    }

    /// The block one place before this one.
    pub(super) fn before(&self, block: &FreeBlock) -> Option<FreeBlock> {
        self.0.range(..block).next_back().copied()
    }

    pub(super) fn largest(&self) -> Option<FreeBlock> {
        self.0.last().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.0.iter().copied()
    }
}
