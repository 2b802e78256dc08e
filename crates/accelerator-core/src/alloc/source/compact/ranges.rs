//! Memory in reserved ranges. Each stream has one address range for each pool, and every chunk that it makes is mapped
//! after its previous one. Free blocks therefore merge across chunks, as if the memory were one piece. Without virtual
//! memory, each segment is a range with a single chunk.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Compact;
use super::owners::Owners;
use crate::alloc::blocks::{BlockId, Owner, PageRange, SegmentId, State};
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

/// A chunk of which an owner can use bytes at the start or at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsableChunk {
    /// Its position.
    pub(super) start: u64,
    pub(super) len: u64,
    /// How many bytes the owner can use at the start; all of them if it can use the whole chunk.
    pub(super) lead: u64,
    /// How many it can use at the end; 0 if it can use the whole chunk.
    pub(super) trail: u64,
}

impl UsableChunk {
    /// Returns whether the owner can use the whole chunk.
    pub(super) fn is_complete(&self) -> bool {
        self.lead == self.len
    }
}

/// Room for the rows and chunks of most misses, so that their lists need not grow.
const USUAL: usize = 64;

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
        self.can_use_from(self.store.free.at(&self.store.blocks, position)?, position + size, owner)
    }

    /// As [`can_use_in_range`](Self::can_use_in_range), for the bytes from a free block up to this position.
    pub(super) fn can_use_from(&self, first: BlockId, end: u64, owner: Owner) -> Option<bool> {
        let blocks = &self.store.blocks;
        let (mut block, mut known) = (&blocks[first], true);
        loop {
            known &= self.owners.can_use(block, owner);
            if end <= block.end() {
                return Some(known);
            }
            block = &blocks[block.next?];
            if block.state != State::Free {
                return None;
            }
        }
    }

    /// Turns a part of a chunk into a backing block, for an alias that is to be mapped to it.
    pub(super) fn hold(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        let held = self.store.claim(position, size, owner);
        self.store.blocks[held].state = State::Backing;
        self.store.blocks[held].requested = 0;
        held
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

    /// Returns the positions of all rows of adjacent free blocks that the owner can use, in order. The blocks of a row
    /// may have different owners. Each row is as long as possible.
    pub(super) fn usable_rows(&self, owner: Owner) -> Vec<Range<u64>> {
        let blocks = &self.store.blocks;
        let (mut rows, mut last): (Vec<Range<u64>>, _) = (Vec::with_capacity(USUAL), None);
        self.store.free.for_each(blocks, |id| {
            let block = &blocks[id];
            if !self.owners.can_use(block, owner) {
                return;
            }
            match rows.last_mut() {
                // Segments have consecutive positions, so the end of one may be the start of another.
                Some(row) if row.end == block.position && last == Some(block.segment) => row.end = block.end(),
                _ => rows.push(block.position..block.end()),
            }
            last = Some(block.segment);
        });
        rows
    }

    /// Returns the chunks of the large pool that have bytes of these rows at the start or at the end, in order of their
    /// positions.
    pub(super) fn usable_chunks(&self, rows: &[Range<u64>]) -> Vec<UsableChunk> {
        if rows.is_empty() {
            return Vec::new();
        }
        let (mut usable, mut rest) = (Vec::with_capacity(USUAL), rows);
        for (start, len) in &self.chunks[PoolKind::Large as usize] {
            let (start, len, end) = (*start, *len, start + len);
            while let [row, behind @ ..] = rest
                && row.end <= start
            {
                rest = behind;
            }
            let Some(row) = rest.first() else { break };
            let lead = if row.start <= start { row.end.min(end) - start } else { 0 };
            // Of the rows that begin in this chunk, only the last may reach its end.
            while let [_, behind @ ..] = rest
                && behind.first().is_some_and(|row| row.start < end)
            {
                rest = behind;
            }
            let trail = rest.first().filter(|row| (start + 1..end).contains(&row.start) && end <= row.end);
            let trail = trail.map_or(0, |row| end - row.start);
            if lead + trail > 0 {
                usable.push(UsableChunk { start, len, lead, trail });
            }
        }
        usable
    }
}

#[cfg(test)]
mod tests;
