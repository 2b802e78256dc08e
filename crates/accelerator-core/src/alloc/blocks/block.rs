//! A block, and the segment that it is part of.

use std::num::NonZeroU64;

use super::base::Base;
use super::slab::{BlockId, SegmentId, UseId};
use crate::types::PoolKind;

/// The number of an owner of free bytes: a stream among those that share the blocks. Where they are all of one stream it is 0.
pub(crate) type Owner = u16;

/// A part of a segment: one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Where it starts, in bytes, if the stream's segments lay one behind the other in the order in which they were made. One
    /// number thus has PyTorch's order of equal blocks: older segment, then lower address.
    pub(crate) position: u64,
    pub(crate) size: u64,
    /// Bytes asked for; of a free block, by the last request that it served.
    pub(crate) requested: u64,
    pub(crate) segment: SegmentId,
    pub(crate) pool: PoolKind,
    /// Whether it is part of an expandable segment.
    pub(crate) expandable: bool,
    pub(crate) state: State,
    /// The block before it in its segment.
    pub(crate) previous: Option<BlockId>,
    pub(crate) next: Option<BlockId>,
    /// While it is on a free list: its children in their tree, those ordered before it and behind it. The first also links the
    /// backing blocks of one alias.
    pub(crate) below: [Option<BlockId>; 2],
    /// The first of the streams beside its own that used it since it was allocated.
    pub(crate) uses: Option<UseId>,
    /// When it became free: by the pool's clock for garbage collection, or the epoch of its owner.
    pub(crate) free_since: u32,
    /// Whose work may use its bytes.
    pub(crate) owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Allocated,
    /// Freed, with this many uses by other streams not known to be over.
    Pending(u32),
    /// Address space without memory, of an expandable segment.
    Unmapped,
    /// Its bytes are in use at another address, or held for that.
    Backing,
}

impl Block {
    /// A free block that is on no list and has no neighbours.
    pub(crate) fn new(segment: SegmentId, of: &Segment, position: u64, size: u64) -> Self {
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

    /// A block like this one of a part of its bytes, for [`Blocks::split_front`](super::Blocks::split_front) and
    /// [`split_back`](super::Blocks::split_back).
    #[inline(always)]
    pub(crate) fn part(&self, offset: u64, size: u64) -> Self {
        let position = self.position.wrapping_add(offset);
        Self { position, size, requested: 0, below: [None; 2], uses: None, ..*self }
    }

    /// Whether it shares its segment with other blocks.
    pub(crate) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// The position behind it.
    pub(crate) fn end(&self) -> u64 {
        self.position.wrapping_add(self.size)
    }
}

/// One driver allocation, or one reservation of address space.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: Base,
    pub(crate) size: u64,
    /// Its number in the order in which the device's segments were made.
    pub(crate) created: u64,
    /// Where it starts, as positions of blocks go.
    pub(crate) position: u64,
    pub(crate) pool: PoolKind,
    /// Bytes of a page, if it is expandable: its memory comes and goes by whole pages.
    pub(crate) page: Option<NonZeroU64>,
    /// The block at its start; `None`: the segment is gone, or the addresses of an alias.
    pub(crate) first: Option<BlockId>,
}

/// A segment to be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSegment {
    pub(crate) base: Base,
    pub(crate) size: u64,
    pub(crate) created: u64,
    pub(crate) pool: PoolKind,
    pub(crate) page: Option<NonZeroU64>,
}

/// Whole pages of an expandable segment. Of use as long as what maps pages there is locked: numbers of segments are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) segment: SegmentId,
    /// Bytes from the start of the segment.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl PageRange {
    /// Bytes from the start of the segment to its end.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}
