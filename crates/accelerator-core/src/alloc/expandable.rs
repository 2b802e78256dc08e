//! Expandable segments of one stream: address space that has memory only where blocks are. Pure bookkeeping, as the arena is.
//!
//! Such a segment begins as one unmapped block. Pages are mapped at the lowest place where free and unmapped blocks together
//! have room for a request, and what is mapped is a free block like any other. PyTorch: `ExpandableSegment`.

use std::num::NonZeroU64;

use super::account::NoRoom;
use super::arena::{Arena, Taken};
use super::block::{Block, BlockId, Segment, SegmentId, State};
use super::policy::Request;
use crate::backend::DevicePtr;
use crate::types::PoolKind;

/// Whole pages of an expandable segment. Of use as long as the stream's reservations are locked: numbers of segments are given
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) segment: SegmentId,
    /// Bytes from the start of the segment.
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Where a request finds room.
#[derive(Debug)]
pub(super) enum Room {
    /// In this free block.
    Free(BlockId),
    /// Where these pages are to be mapped; perhaps others behind them, too.
    Unmapped(PageRange),
    /// In no segment that there is.
    Nowhere,
}

impl<P: DevicePtr> Arena<P> {
    /// Takes in a reservation, of which nothing is mapped.
    pub(super) fn add_expandable(
        &mut self,
        ptr: P,
        size: u64,
        created: u64,
        pool: PoolKind,
        page: NonZeroU64,
    ) -> SegmentId {
        let id = self.blocks.add_segment(ptr, size, created, pool, Some(page));
        self.blocks[id].state = State::Unmapped;
        self.list(id);
        self.expandable += 1;
        self.see_whether_plain();
        self.blocks[id].segment
    }

    /// Takes the segment out of the books, if nothing of it is mapped. Whether that was so.
    pub(super) fn remove_unmapped(&mut self, segment: SegmentId) -> bool {
        let Some(id) = self.blocks.segments[segment].first else { return false };
        if self.blocks[id].state != State::Unmapped || self.blocks[id].next.is_some() {
            return false;
        }
        self.unlist(id);
        self.blocks.blocks.remove(id);
        self.blocks.segments[segment].first = None;
        self.blocks.segments.remove(segment);
        self.expandable -= 1;
        self.see_whether_plain();
        true
    }

    /// [`take`](Self::take), where the best fit is in an expandable segment.
    pub(super) fn take_beside(
        &mut self,
        best: BlockId,
        request: &Request,
        clock: u32,
    ) -> Result<Option<Taken<P>>, NoRoom> {
        let Some(id) = self.instead_of_expandable(best) else { return Ok(None) };
        let Some(fit) = self.config.fit(request, self.blocks[id].size) else { return Ok(None) };
        self.take_block::<true>(id, request, fit, clock).map(Some)
    }

    /// The free block to take where the best fit is in an expandable segment. PyTorch: `get_free_block`.
    fn instead_of_expandable(&self, mut id: BlockId) -> Option<BlockId> {
        let free = &self.free[self.blocks[id].pool as usize];
        if !self.config.expandable_segments {
            // They were switched off, and their users want none.
            while self.blocks[id].expandable {
                id = free.behind(&self.blocks, id)?;
            }
            return Some(id);
        }
        // Where a block can grow, all that it can grow to would be cut, so a larger one may be the better fit.
        while self.blocks[id].expandable
            && self.could_grow_to(id) > self.blocks[id].size
            && let Some(next) = free.behind(&self.blocks, id)
            && self.could_grow_to(next) < self.could_grow_to(id)
        {
            id = next;
        }
        Some(id)
    }

    /// Bytes of a free block and of the unmapped one behind it.
    fn could_grow_to(&self, id: BlockId) -> u64 {
        let Block { size, next, .. } = self.blocks[id];
        let next = next.map(|next| &self.blocks[next]).filter(|next| next.state == State::Unmapped);
        size + next.map_or(0, |next| next.size)
    }

    /// The lowest room for a request, and what to map there first. PyTorch: `find_expandable_block`.
    pub(super) fn room_for(&self, request: &Request) -> Room {
        for unmapped in self.unmapped[request.pool as usize].values().copied() {
            let before = self.blocks[unmapped].previous;
            let before = before.filter(|before| self.blocks[*before].state == State::Free);
            if !self.has_room(before.unwrap_or(unmapped), request.size) {
                continue;
            }
            return match before {
                Some(free) if self.blocks[free].size >= request.size => Room::Free(free),
                Some(free) => Room::Unmapped(self.start_of(unmapped, request.size - self.blocks[free].size)),
                None => Room::Unmapped(self.start_of(unmapped, request.size)),
            };
        }
        Room::Nowhere
    }

    /// Whether the block and those behind it, free or unmapped, have so many bytes together.
    fn has_room(&self, first: BlockId, size: u64) -> bool {
        let (mut room, mut next) = (0, Some(first));
        while let Some(block) = next.map(|next| &self.blocks[next])
            && matches!(block.state, State::Free | State::Unmapped)
            && room < size
        {
            room += block.size;
            next = block.next;
        }
        room >= size
    }

    /// The pages of an unmapped block that hold its first so many bytes, as far as it goes.
    fn start_of(&self, unmapped: BlockId, bytes: u64) -> PageRange {
        let Block { segment, position, size, .. } = self.blocks[unmapped];
        let Segment { position: start, page, .. } = self.blocks.segments[segment];
        let len = match page {
            Some(page) if bytes < size => bytes.next_multiple_of(page.get()),
            _ => size, // whole pages, too
        };
        PageRange { segment, offset: position.wrapping_sub(start), len }
    }

    /// Pages have been mapped, which are a free block now, one with its free neighbours: this. PyTorch: `map_block`.
    pub(super) fn add_pages(&mut self, range: PageRange) -> BlockId {
        let id = self.part_of_unmapped(range);
        self.blocks[id].state = State::Free;
        self.merge(id);
        self.list(id);
        id
    }

    /// Unmapped pages become a block that is on no list.
    pub(super) fn part_of_unmapped(&mut self, range: PageRange) -> BlockId {
        let Segment { position, pool, .. } = self.blocks.segments[range.segment];
        let from = position.wrapping_add(range.offset);
        let unmapped = self.unmapped[pool as usize].range(..=from).next_back();
        let Some(id) = unmapped.map(|(_, id)| *id) else { unreachable!("pages are mapped where none are") };
        self.unlist(id);
        let ahead = from - self.blocks[id].position;
        let behind = self.blocks[id].size - ahead - range.len;
        self.cut(id, ahead, behind);
        id
    }

    /// Takes all whole pages of the pool's free blocks out of the books: these. PyTorch: `unmap_block`.
    pub(super) fn remove_free_pages(&mut self, pool: PoolKind) -> Vec<PageRange> {
        let sorted = self.free[pool as usize].sorted(&self.blocks);
        sorted.into_iter().filter_map(|free| self.remove_pages(free)).collect()
    }

    fn remove_pages(&mut self, id: BlockId) -> Option<PageRange> {
        let Block { segment, position, size, .. } = self.blocks[id];
        let Segment { position: start, page, .. } = self.blocks.segments[segment];
        let page = page?.get();
        let offset = position.wrapping_sub(start);
        let (from, to) = (offset.next_multiple_of(page), (offset + size) / page * page);
        if from >= to {
            return None;
        }
        self.unlist(id);
        self.cut(id, from - offset, offset + size - to);
        self.blocks[id].state = State::Unmapped;
        self.merge(id);
        self.list(id);
        Some(PageRange { segment, offset: from, len: to - from })
    }

    /// Makes listed blocks of their own of the first and the last bytes of one that is on no list.
    pub(super) fn cut(&mut self, id: BlockId, ahead: u64, behind: u64) {
        let Block { segment, position, size, state, free_since, owner, previous, next, .. } = self.blocks[id];
        let piece = |position, size, previous, next| {
            let piece = Block::new(segment, &self.blocks.segments[segment], position, size);
            Block { state, free_since, owner, previous, next, ..piece }
        };
        let first = (ahead > 0).then(|| piece(position, ahead, previous, Some(id)));
        let last = (behind > 0).then(|| piece(position + (size - behind), behind, Some(id), next));
        self.blocks[id].position = position.wrapping_add(ahead);
        self.blocks[id].size = size - ahead - behind;
        if let Some(first) = first {
            let first = self.blocks.blocks.insert(first);
            self.blocks.link(previous, segment, first);
            self.blocks[id].previous = Some(first);
            self.list(first);
        }
        if let Some(last) = last {
            let last = self.blocks.blocks.insert(last);
            self.blocks[id].next = Some(last);
            if let Some(next) = next {
                self.blocks[next].previous = Some(last);
            }
            self.list(last);
        }
    }

    /// A block that is on no list takes in its neighbours of the same state and owner. Where it is free memory of an owner's, since
    /// when all of it is free is the caller's to say.
    pub(super) fn merge(&mut self, id: BlockId) {
        let Block { segment, state, owner, previous, next, .. } = self.blocks[id];
        let is_alike =
            |block: &BlockId| (self.blocks[*block].state, self.blocks[*block].owner) == (state, owner);
        let (before, behind) = (previous.filter(is_alike), next.filter(is_alike));
        if let Some(before) = before {
            self.unlist(before);
            let Block { position, size, previous, .. } = self.blocks[before];
            let block = &mut self.blocks[id];
            (block.position, block.previous) = (position, previous);
            block.size += size;
            self.blocks.link(previous, segment, id);
            self.blocks.blocks.remove(before);
        }
        if let Some(behind) = behind {
            self.unlist(behind);
            let Block { size, next, .. } = self.blocks[behind];
            self.blocks[id].size += size;
            self.blocks[id].next = next;
            if let Some(next) = next {
                self.blocks[next].previous = Some(id);
            }
            self.blocks.blocks.remove(behind);
        }
    }

    pub(super) fn list(&mut self, id: BlockId) {
        let Block { pool, position, state, .. } = self.blocks[id];
        match (state, &mut self.compact) {
            (State::Unmapped, _) => drop(self.unmapped[pool as usize].insert(position, id)),
            (_, Some(compact)) => compact.list(&mut self.blocks, id),
            (_, None) => self.free[pool as usize].insert(&mut self.blocks, id),
        }
    }

    pub(super) fn unlist(&mut self, id: BlockId) {
        let Block { pool, position, state, .. } = self.blocks[id];
        match (state, &mut self.compact) {
            (State::Unmapped, _) => drop(self.unmapped[pool as usize].remove(&position)),
            (_, Some(compact)) => compact.unlist(&mut self.blocks, id),
            (_, None) => self.free[pool as usize].remove(&mut self.blocks, id),
        }
    }
}
