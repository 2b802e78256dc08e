//! A block, and the segment that it belongs to.

use std::num::NonZeroU64;

use super::base::Base;
use super::slab::SegmentId;
use super::slots::BlockId;
use super::uses::Used;
use crate::types::PoolKind;

/// Identifies the owner of free bytes, one of the streams that share the blocks. It is 0 where all blocks belong to one
/// stream.
pub(crate) type Owner = u16;

/// A part of a segment. It fills one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The byte offset at which it would start if the stream's segments followed one another in order of creation. This
    /// single number gives PyTorch's order of equal blocks: older segment first, then lower address.
    pub(crate) position: u64,
    pub(crate) size: u64,
    /// The number of bytes requested; for a free block, by the last request that it served.
    pub(crate) requested: u64,
    pub(crate) segment: SegmentId,
    pub(crate) pool: PoolKind,
    /// Whether it belongs to an expandable segment.
    pub(crate) expandable: bool,
    pub(crate) state: State,
    /// The preceding block in its segment.
    pub(crate) previous: Option<BlockId>,
    pub(crate) next: Option<BlockId>,
    /// While it is in a bin: the tree of smaller sizes and that of larger ones, or below the first block of its size,
    /// the next of its siblings, and the previous one or its parent. The first slot also links the backing blocks of an
    /// alias, and vacant slots.
    pub(crate) below: [Option<BlockId>; 2],
    /// While it is in a bin: the first of the blocks of its size that are below it. Otherwise there is none.
    pub(crate) child: Option<BlockId>,
    /// The recorded uses by other streams since it was allocated.
    pub(crate) uses: Used,
    /// When it became free, in units of the pool's garbage collection clock or as an epoch of its owner. While it is
    /// pending, how many uses by other streams are not known to be complete.
    pub(crate) free_since: u32,
    /// The stream whose work may use its bytes.
    pub(crate) owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Allocated,
    /// Freed, but uses by other streams are not known to be complete.
    Pending,
    /// Address space of an expandable segment without memory.
    Unmapped,
    /// Its bytes are in use at another address, or held for such use.
    Backing,
}

impl Block {
    /// Stands for the neighbour of a block without one. It is never free, and has no bytes.
    pub(super) const NONE: Self = Self {
        position: 0,
        size: 0,
        requested: 0,
        segment: SegmentId::FIRST,
        pool: PoolKind::Small,
        expandable: false,
        state: State::Allocated,
        previous: None,
        next: None,
        below: [None; 2],
        child: None,
        uses: Used::BY_NONE,
        free_since: 0,
        owner: 0,
    };

    /// Creates a free block that is on no list and has no neighbours.
    pub(crate) fn new(segment: SegmentId, of: &Segment, position: u64, size: u64) -> Self {
        let (pool, expandable, state) = (of.pool, of.page.is_some(), State::Free);
        Self { position, size, segment, pool, expandable, state, ..Self::NONE }
    }

    /// Returns a copy of this block that covers only a part of its bytes, for
    /// [`Blocks::split_front`](super::Blocks::split_front) and [`split_back`](super::Blocks::split_back).
    #[inline(always)]
    pub(crate) fn part(&self, offset: u64, size: u64) -> Self {
        let position = self.position.wrapping_add(offset);
        Self { position, size, requested: 0, below: [None; 2], child: None, uses: Used::BY_NONE, ..*self }
    }

    /// Returns whether its segment has other blocks.
    #[inline(always)]
    pub(crate) fn is_split(&self) -> bool {
        self.previous.is_some() | self.next.is_some() // without a branch
    }

    /// Returns the position at which it ends.
    pub(crate) fn end(&self) -> u64 {
        self.position.wrapping_add(self.size)
    }
}

/// A single driver allocation or address space reservation.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: Base,
    pub(crate) size: u64,
    /// Its number in the creation order of the device's segments.
    pub(crate) created: u64,
    /// The position at which it starts, on the same scale as positions of blocks.
    pub(crate) position: u64,
    pub(crate) pool: PoolKind,
    /// The page size, if the segment is expandable: its memory is mapped and unmapped in whole pages.
    pub(crate) page: Option<NonZeroU64>,
    /// The first block; `None` if the segment has been removed or is the address range of an alias.
    pub(crate) first: Option<BlockId>,
}

impl Segment {
    /// Creates a segment to be added, which gets its position then.
    pub(crate) fn new(base: Base, size: u64, created: u64, pool: PoolKind, page: Option<NonZeroU64>) -> Self {
        Self { base, size, created, position: 0, pool, page, first: None }
    }
}

/// Whole pages of an expandable segment. Valid only while the lock of the segment's page mappings is held, because
/// segment numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) segment: SegmentId,
    /// The byte offset from the start of the segment.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl PageRange {
    /// Returns the byte offset of its end from the start of the segment.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}
