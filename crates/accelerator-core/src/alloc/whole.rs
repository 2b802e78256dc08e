//! Whole free segments: what an arena can give back.

use super::arena::Arena;
use super::block::{Block, BlockId, Segment, SegmentId, State};
use super::free_list::FreeList;
use crate::backend::DevicePtr;
use crate::types::{PoolKind, StreamId};

/// A segment that is one free block.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeFree {
    segment: SegmentId,
    created: u64,
    pub(super) size: u64,
    /// The pool's clock when it became free.
    pub(super) free_since: u32,
}

/// A segment taken out of the books, to be given back to the driver: once, so it cannot be copied.
#[derive(Debug)]
pub(super) struct Detached<P> {
    pub(super) ptr: P,
    pub(super) size: u64,
    pub(super) pool: PoolKind,
    /// The stream that it served.
    pub(super) stream: StreamId,
}

impl<P: DevicePtr> Arena<P> {
    /// Takes every whole free segment of a pool out of the books.
    pub(super) fn detach_all(&mut self, pool: PoolKind) -> Vec<Detached<P>> {
        self.whole_free(pool).into_iter().filter_map(|segment| self.detach(segment)).collect()
    }

    /// Takes one segment out of the books, if it is whole and free still.
    pub(super) fn detach(&mut self, whole: WholeFree) -> Option<Detached<P>> {
        let Segment { ptr, size, created, pool, first, .. } = self.blocks.segments[whole.segment];
        let id = first.filter(|_| created == whole.created)?;
        let block = &self.blocks[id];
        if block.state != State::Free || block.is_split() || block.expandable {
            return None;
        }
        self.free[pool as usize].remove(&mut self.blocks, id);
        self.blocks.blocks.remove(id);
        self.blocks.segments[whole.segment].first = None;
        self.blocks.segments.remove(whole.segment);
        Some(Detached { ptr, size, pool, stream: self.stream })
    }

    /// The segments of a pool that are one free block, in the order of best fit.
    pub(super) fn whole_free(&self, pool: PoolKind) -> Vec<WholeFree> {
        let sorted = self.free[pool as usize].sorted(&self.blocks);
        sorted.into_iter().filter_map(|free| self.as_whole(free)).collect()
    }

    /// Whole free segments that give `wanted` bytes, at least the oversize limit, together: one that is large enough,
    /// else the largest oversize ones before it, as far as they go. PyTorch: the choice of `release_available_cached_blocks`.
    pub(super) fn oversize_for(&self, pool: PoolKind, wanted: u64) -> Vec<WholeFree> {
        let free = &self.free[pool as usize];
        if let Some(free) = free.best_fit(&self.blocks, wanted)
            && !self.blocks[free].expandable
        {
            return self.as_whole(free).into_iter().collect();
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
            chosen.extend(self.as_whole(id));
        }
        chosen
    }

    fn as_whole(&self, id: BlockId) -> Option<WholeFree> {
        let Block { segment, size, free_since, .. } = self.blocks[id];
        let created = self.blocks.segments[segment].created;
        (!self.blocks[id].is_split() && !self.blocks[id].expandable).then_some(WholeFree {
            segment,
            created,
            size,
            free_since,
        })
    }

    /// Bytes of the largest free block of a pool; 0: there is none.
    pub(super) fn largest_free(&self, pool: PoolKind) -> u64 {
        let lists: Vec<&FreeList> = match &self.compact {
            Some(compact) => compact.free_lists(pool).collect(),
            None => vec![&self.free[pool as usize]],
        };
        let largest = lists.into_iter().filter_map(|list| list.largest(&self.blocks));
        largest.map(|id| self.blocks[id].size).max().unwrap_or(0)
    }
}
