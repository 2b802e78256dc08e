//! Segments that are a single free block and can therefore go back to the driver.

use super::private::Private;
use super::store::Store;
use crate::alloc::blocks::{Base, Block, BlockId, Segment, SegmentId, State};
use crate::alloc::settings::in_blocks;
use crate::types::{PoolKind, StreamId};

/// A segment that is a single free block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeSegment {
    segment: SegmentId,
    created: u64,
    pub(crate) size: u64,
    /// The value of the pool's clock when it became free.
    pub(crate) free_since: u32,
}

/// A segment that was removed and must go back to the driver. It cannot be copied, so it goes back only once.
#[derive(Debug)]
pub(crate) struct DetachedSegment {
    pub(crate) base: Base,
    pub(crate) size: u64,
    pub(crate) pool: PoolKind,
    /// The stream that it served.
    pub(crate) stream: StreamId,
    /// The private pool that it was part of.
    pub(crate) private: Private,
}

impl Store {
    /// Removes every free segment of a pool.
    pub(crate) fn detach_all(&mut self, pool: PoolKind) -> Vec<DetachedSegment> {
        self.free_segments(pool).into_iter().filter_map(|segment| self.detach(segment)).collect()
    }

    /// Removes a segment, if it is still free.
    pub(crate) fn detach(&mut self, free: FreeSegment) -> Option<DetachedSegment> {
        let Segment { created, first, .. } = *self.blocks.segment(free.segment);
        let block = &self.blocks[first.filter(|_| created == free.created)?];
        if block.state != State::Free || block.is_split() || block.expandable {
            return None;
        }
        Some(self.detach_segment(free.segment, self.stream))
    }

    /// Removes a completely free segment that served this stream.
    pub(crate) fn detach_segment(&mut self, id: SegmentId, stream: StreamId) -> DetachedSegment {
        let Segment { base, size, pool, .. } = *self.blocks.segment(id);
        self.remove_segment(id);
        DetachedSegment { base, size, pool, stream, private: self.private.clone() }
    }

    /// Returns the free segments of a pool, in best-fit order.
    pub(crate) fn free_segments(&self, pool: PoolKind) -> Vec<FreeSegment> {
        let whole = self.free.of(pool).sorted_if(&self.blocks, |free| !free.is_split());
        whole.into_iter().filter_map(|free| self.as_segment(free)).collect()
    }

    /// Returns free segments to release for `wanted` bytes, which are at least the oversize limit: a single one that is
    /// large enough, or else the largest oversize ones below that size, until they suffice or none are left. PyTorch:
    /// the choice in `release_available_cached_blocks`.
    pub(crate) fn oversize_for(&self, pool: PoolKind, wanted: u64) -> Vec<FreeSegment> {
        let free = self.free.of(pool);
        if let Some(free) = free.best_fit(&self.blocks, in_blocks(wanted))
            && !self.blocks[free].expandable
        {
            return self.as_segment(free).into_iter().collect();
        }
        let mut chosen = Vec::new();
        let mut released = 0;
        let smaller = free.sorted(&self.blocks).into_iter().filter(|id| self.blocks[*id].size < wanted);
        for id in smaller.rev().filter(|id| !self.blocks[*id].expandable) {
            let size = self.blocks[id].size;
            if released >= wanted || !self.config.is_oversize(size) {
                break;
            }
            released += size;
            chosen.extend(self.as_segment(id));
        }
        chosen
    }

    fn as_segment(&self, id: BlockId) -> Option<FreeSegment> {
        let Block { segment, size, free_since, expandable, .. } = self.blocks[id];
        let created = self.blocks.segment(segment).created;
        let is_segment = !self.blocks[id].is_split() && !expandable;
        is_segment.then_some(FreeSegment { segment, created, size, free_since })
    }
}
