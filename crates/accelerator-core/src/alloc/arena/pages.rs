//! Expandable segments: address space in which only blocks that are not unmapped have memory.
//!
//! Such a segment begins as one unmapped block. Pages are mapped at the lowest place where adjacent free and unmapped
//! blocks have room for a request. Mapped memory is a free block like any other. PyTorch: `ExpandableSegment`.

use super::Arena;
use super::store::Store;
use crate::alloc::blocks::{Block, BlockId, PageRange, Segment, SegmentId, State, if_free};
use crate::alloc::settings::Request;
use crate::types::PoolKind;

impl Arena {
    /// Adds a reservation in which nothing is mapped.
    pub(crate) fn add_reservation(&mut self, reservation: Segment) -> SegmentId {
        let store = self.store_mut();
        let id = store.blocks.add_segment(reservation, State::Unmapped);
        store.free.list::<false>(&mut store.blocks, id);
        store.expandable += 1;
        let segment = store.blocks[id].segment;
        self.update_warm();
        segment
    }

    /// Removes a reservation if nothing is mapped in it. Returns whether that was the case.
    pub(crate) fn remove_unmapped(&mut self, segment: SegmentId) -> bool {
        let store = self.store_mut();
        let Some(id) = store.blocks.segment(segment).first else { return false };
        if store.blocks[id].state != State::Unmapped || store.blocks[id].next.is_some() {
            return false;
        }
        store.remove_segment(segment);
        store.expandable -= 1;
        self.update_warm();
        true
    }
}

impl Store {
    /// Returns the block to use when the best fit is in an expandable segment. PyTorch: `get_free_block`.
    pub(super) fn instead_of_expandable(&mut self, id: BlockId) -> Option<BlockId> {
        let free = self.free.of(self.blocks[id].pool);
        if !self.config.expandable_segments {
            // The setting was switched off, so requests must not use such segments.
            return free.from(&self.blocks, id).find(|id| !self.blocks[*id].expandable);
        }
        // A block that can grow counts with the size that it can reach, so a larger block may be the better fit.
        if !self.can_grow(id) {
            return Some(id);
        }
        let second = free.second(&mut self.blocks, id);
        if second.is_none_or(|second| self.could_grow_to(second) >= self.could_grow_to(id)) {
            return Some(id);
        }
        let mut best = id;
        for next in free.from(&self.blocks, id).skip(1) {
            if !self.can_grow(best) || self.could_grow_to(next) >= self.could_grow_to(best) {
                break;
            }
            best = next;
        }
        Some(best)
    }

    fn can_grow(&self, id: BlockId) -> bool {
        self.blocks[id].expandable && self.could_grow_to(id) > self.blocks[id].size
    }

    /// Returns the size of a free block plus the unmapped block after it.
    fn could_grow_to(&self, id: BlockId) -> u64 {
        let Block { size, next, .. } = self.blocks[id];
        let next = next.map(|next| &self.blocks[next]).filter(|next| next.state == State::Unmapped);
        size + next.map_or(0, |next| next.size)
    }

    /// Returns the lowest free block with room for a request. PyTorch: `find_expandable_block`.
    ///
    /// # Errors
    /// If there is no such block: the pages to map first. More may be needed after them. `None` if no segment has room.
    pub(crate) fn room_for(&self, request: &Request) -> Result<BlockId, Option<PageRange>> {
        for unmapped in self.free.unmapped(request.pool).values().copied() {
            let before = if_free(&self.blocks, self.blocks[unmapped].previous);
            if !self.has_room(before.unwrap_or(unmapped), request.size) {
                continue;
            }
            let missing = request.size.saturating_sub(before.map_or(0, |free| self.blocks[free].size));
            let free = before.filter(|_| missing == 0);
            return free.ok_or_else(|| Some(self.start_of(unmapped, missing)));
        }
        Err(None)
    }

    /// Returns whether the block and its free or unmapped successors have this many bytes together.
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

    /// Returns the pages that contain the first `bytes` bytes of an unmapped block, or the whole block if it is
    /// shorter.
    fn start_of(&self, unmapped: BlockId, bytes: u64) -> PageRange {
        let Block { segment, position, size, .. } = self.blocks[unmapped];
        let Segment { position: start, page, .. } = *self.blocks.segment(segment);
        let len = match page {
            Some(page) if bytes < size => bytes.next_multiple_of(page.get()),
            _ => size, // also whole pages
        };
        PageRange { segment, offset: position.wrapping_sub(start), len }
    }

    /// Adds mapped pages as free memory. Returns the free block, merged with its free neighbours. PyTorch: `map_block`.
    pub(crate) fn add_pages(&mut self, range: PageRange) -> BlockId {
        let id = self.part_of_unmapped(range);
        self.merge_and_list(id, State::Free);
        id
    }

    /// Turns unmapped pages into a block of their own, which is on no list.
    pub(crate) fn part_of_unmapped(&mut self, range: PageRange) -> BlockId {
        let Segment { position, pool, .. } = *self.blocks.segment(range.segment);
        let from = position.wrapping_add(range.offset);
        let unmapped = self.free.unmapped(pool).range(..=from).next_back();
        let Some(id) = unmapped.map(|(_, id)| *id) else { unreachable!("only unmapped pages are mapped") };
        self.free.unlist::<false>(&mut self.blocks, id);
        let ahead = from - self.blocks[id].position;
        let behind = self.blocks[id].size - ahead - range.len;
        self.split_ends(id, ahead, behind);
        id
    }

    /// Takes all whole pages out of the pool's free blocks and returns them. PyTorch: `unmap_block`.
    pub(crate) fn remove_free_pages(&mut self, pool: PoolKind) -> Vec<PageRange> {
        let sorted = self.free.of(pool).sorted(&self.blocks);
        sorted.into_iter().filter_map(|free| self.remove_pages(free)).collect()
    }

    fn remove_pages(&mut self, id: BlockId) -> Option<PageRange> {
        let Block { segment, position, size, .. } = self.blocks[id];
        let Segment { position: start, page, .. } = *self.blocks.segment(segment);
        let page = page?.get();
        let offset = position.wrapping_sub(start);
        let (from, to) = (offset.next_multiple_of(page), (offset + size) / page * page);
        if from >= to {
            return None;
        }
        self.free.unlist::<false>(&mut self.blocks, id);
        self.split_ends(id, from - offset, offset + size - to);
        self.merge_and_list(id, State::Unmapped);
        Some(PageRange { segment, offset: from, len: to - from })
    }
}
