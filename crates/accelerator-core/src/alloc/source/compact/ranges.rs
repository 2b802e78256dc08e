//! Memory in reserved ranges. Each stream has one address range for each pool, and every chunk that it makes is mapped
//! after its previous one. Free blocks therefore merge across chunks, as if the memory were one piece. Without virtual
//! memory, each segment is a range with a single chunk.

use std::collections::BTreeMap;

use super::Compact;
use super::owners::Owners;
use crate::alloc::blocks::{Block, BlockId, Owner, PageRange, SegmentId, State};
use crate::types::PoolKind;

/// An address range for the chunks of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReservedRange {
    pub(super) owner: Owner,
    pub(super) pool: PoolKind,
    pub(super) segment: SegmentId,
    /// The byte offset at which the next chunk will be mapped.
    pub(super) end: u64,
    /// The total size of its chunks.
    pub(super) owned: u64,
}

impl Compact {
    /// Returns the newest range of an owner.
    pub(super) fn range(&self, owner: Owner, pool: PoolKind) -> Option<usize> {
        self.ranges.iter().rposition(|range| (range.owner, range.pool) == (owner, pool))
    }

    /// Returns the position at which the next chunk of a range will be mapped.
    pub(super) fn end_of(&self, range: usize) -> u64 {
        let ReservedRange { segment, end, .. } = self.ranges[range];
        self.store.blocks.segment(segment).position.wrapping_add(end)
    }

    /// Returns the segment of a chunk, and its byte offset there.
    pub(super) fn place_of_chunk(&self, chunk: u64) -> (SegmentId, u64) {
        let segments = self.ranges.iter().map(|range| range.segment);
        let mut offsets = segments.map(|id| (id, chunk.wrapping_sub(self.store.blocks.segment(id).position)));
        let place = offsets.find(|(id, offset)| *offset < self.store.blocks.segment(*id).size);
        place.unwrap_or_else(|| unreachable!("chunks are in ranges"))
    }

    /// Returns how many more bytes a range has space for.
    pub(super) fn space_in(&self, range: usize) -> u64 {
        let ReservedRange { segment, end, .. } = self.ranges[range];
        self.store.blocks.segment(segment).size - end
    }

    /// Returns how many bytes the owner can use directly before the place of its next chunk.
    pub(super) fn free_tail(&self, range: usize) -> u64 {
        let ReservedRange { owner, pool, segment, end, .. } = self.ranges[range];
        let rest = self.store.free.unmapped(pool).get(&self.end_of(range));
        let mut before = rest.and_then(|rest| self.store.blocks[*rest].previous);
        if self.space_in(range) == 0 {
            before = self.store.blocks.of_segment(segment).last().map(|(last, _)| last);
        }
        let mut bytes = 0;
        while let Some(block) = before.map(|before| &self.store.blocks[before])
            && block.state == State::Free
            && self.owners.can_use(block, owner)
            && bytes < end
        {
            bytes += block.size;
            before = block.previous;
        }
        bytes
    }

    /// Adds chunks that were mapped at the end of a range, as free memory.
    pub(super) fn add_chunks(&mut self, range: usize, lens: &[u64]) {
        let start = self.end_of(range);
        let ReservedRange { owner, pool, segment, end, .. } = self.ranges[range];
        let len = lens.iter().sum();
        self.ranges[range].end += len;
        self.ranges[range].owned += len;
        self.costs.reserved += len;
        let mut position = start;
        for len in lens {
            self.chunks[pool as usize].insert(position, *len);
            position = position.wrapping_add(*len);
        }
        let block = self.store.part_of_unmapped(PageRange { segment, offset: end, len });
        self.put_free_since(block, owner, Owners::ALWAYS_OVER);
    }

    /// Returns whether the owner can use these bytes; `None` if they are not all free.
    pub(super) fn can_use_in_range(&self, position: u64, size: u64, owner: Owner) -> Option<bool> {
        let (mut at, end, mut known) = (position, position + size, true);
        while at < end {
            let block = &self.store.blocks[self.store.free.at(&self.store.blocks, at)?];
            known &= self.owners.can_use(block, owner);
            at = block.position + block.size;
        }
        Some(known)
    }

    /// Returns the free block that contains the byte at a position, if the owner can use it.
    pub(super) fn usable_at(&self, position: u64, owner: Owner) -> Option<&Block> {
        let block = &self.store.blocks[self.store.free.at(&self.store.blocks, position)?];
        self.owners.can_use(block, owner).then_some(block)
    }

    /// Turns a part of a chunk into a backing block, for an alias that is to be mapped to it.
    pub(super) fn hold(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        let held = self.store.claim(position, size, owner);
        self.store.blocks[held].state = State::Backing;
        self.store.blocks[held].requested = 0;
        held
    }

    /// Returns how many bytes the owner can use from the start of a chunk, and how many up to its end. If it can use
    /// the whole chunk, the latter is 0.
    pub(super) fn usable_ends(&self, chunk: u64, len: u64, owner: Owner) -> (u64, u64) {
        let end = chunk + len;
        let (mut lead, mut trail) = (chunk, end);
        while lead < end
            && let Some(block) = self.usable_at(lead, owner)
        {
            lead = end.min(block.end());
        }
        while trail > lead
            && let Some(block) = self.usable_at(trail - 1, owner)
        {
            trail = chunk.max(block.position);
        }
        (lead - chunk, end - trail)
    }

    /// Returns the free bytes of the chunks of a range that are partly in use.
    pub(super) fn free_in_used_chunks_of(&self, range: &ReservedRange) -> u64 {
        let chunks = &self.chunks[range.pool as usize];
        let mut free_in: BTreeMap<u64, u64> = BTreeMap::new();
        let blocks = self.store.blocks.of_segment(range.segment).map(|(_, block)| block);
        for block in blocks.filter(|block| block.state == State::Free) {
            let before = chunks.range(..block.end()).rev();
            for (chunk, len) in before.take_while(|(chunk, len)| *chunk + *len > block.position) {
                let (from, to) = (block.position.max(*chunk), block.end().min(chunk + len));
                *free_in.entry(*chunk).or_default() += to - from;
            }
        }
        free_in.into_iter().filter(|(chunk, free)| *free < chunks[chunk]).map(|(_, free)| free).sum()
    }

    /// Returns the length and position of the shortest row of adjacent free blocks that the owner can use and that have
    /// enough bytes. The blocks may have different owners.
    pub(super) fn row_in_ranges(&self, size: u64, owner: Owner) -> Option<(u64, u64)> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        let mut last: Option<(SegmentId, u64)> = None;
        for block in self.store.free.in_order(&self.store.blocks).map(|id| &self.store.blocks[id]) {
            if !self.owners.can_use(block, owner) {
                continue;
            }
            match rows.last_mut() {
                Some((len, _)) if last == Some((block.segment, block.position)) => *len += block.size,
                _ => rows.push((block.size, block.position)),
            }
            last = Some((block.segment, block.position + block.size));
        }
        rows.into_iter().filter(|(len, _)| *len >= size).min()
    }
}
