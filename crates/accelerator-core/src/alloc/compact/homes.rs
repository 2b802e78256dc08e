//! Memory at its own addresses. Each stream has a home for each pool: one range of addresses, where every chunk that it makes
//! lies behind the last one. So free blocks merge across chunks, and memory is as if it were one piece. Without virtual memory each
//! segment is a home of its own, with one chunk.

use super::owners::Owner;
use crate::alloc::arena::Arena;
use crate::alloc::block::{Block, BlockId, SegmentId, State};
use crate::alloc::expandable::PageRange;
use crate::backend::DevicePtr;
use crate::types::PoolKind;

/// Addresses for the chunks of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) owner: Owner,
    pub(super) pool: PoolKind,
    pub(super) segment: SegmentId,
    /// Bytes from its start to where the next chunk goes.
    pub(super) end: u64,
    /// Bytes of its chunks.
    pub(super) owned: u64,
}

impl<P: DevicePtr> Arena<P> {
    /// The newest home of an owner.
    pub(super) fn home(&self, owner: Owner, pool: PoolKind) -> Option<usize> {
        self.compact().homes.iter().rposition(|home| (home.owner, home.pool) == (owner, pool))
    }

    /// The position where the next chunk of a home goes.
    pub(super) fn end_of(&self, home: usize) -> u64 {
        let Home { segment, end, .. } = self.compact().homes[home];
        self.blocks.segments[segment].position.wrapping_add(end)
    }

    /// Bytes that a home can still take.
    pub(super) fn space_in(&self, home: usize) -> u64 {
        let Home { segment, end, .. } = self.compact().homes[home];
        self.blocks.segments[segment].size - end
    }

    /// Bytes that the owner can use right before where its next chunk goes.
    pub(super) fn free_tail(&self, home: usize) -> u64 {
        let Home { owner, pool, segment, end, .. } = self.compact().homes[home];
        let range = self.unmapped[pool as usize].get(&self.end_of(home));
        let mut before = range.and_then(|rest| self.blocks[*rest].previous);
        if self.space_in(home) == 0 {
            before = self.last_of(segment);
        }
        let mut bytes = 0;
        while let Some(block) = before.map(|before| &self.blocks[before])
            && block.state == State::Free
            && self.compact().owners.can_use(block, owner)
            && bytes < end
        {
            bytes += block.size;
            before = block.previous;
        }
        bytes
    }

    fn last_of(&self, segment: SegmentId) -> Option<BlockId> {
        let mut last = self.blocks.segments[segment].first?;
        while let Some(next) = self.blocks[last].next {
            last = next;
        }
        Some(last)
    }

    /// Takes in a reservation, of which nothing is mapped.
    pub(super) fn add_home(&mut self, owner: Owner, pool: PoolKind, segment: SegmentId) {
        self.compact_mut().homes.push(Home { owner, pool, segment, end: 0, owned: 0 });
    }

    /// Takes in chunks that were mapped at the end of a home: free memory.
    pub(super) fn add_chunks(&mut self, home: usize, lens: &[u64]) {
        let start = self.end_of(home);
        let Home { owner, pool, segment, end, .. } = self.compact().homes[home];
        let len = lens.iter().sum();
        let compact = self.compact_mut();
        compact.homes[home].end += len;
        compact.homes[home].owned += len;
        compact.reserved += len;
        let mut position = start;
        for len in lens {
            compact.chunks[pool as usize].insert(position, *len);
            position = position.wrapping_add(*len);
        }
        let block = self.part_of_unmapped(PageRange { segment, offset: end, len });
        self.put_fresh(block, owner);
    }

    /// Whether the bytes can be used by the owner; `None`: they are not even free.
    pub(super) fn can_use_at_home(&self, position: u64, size: u64, owner: Owner) -> Option<bool> {
        let (mut at, end, mut known) = (position, position + size, true);
        while at < end {
            let block = &self.blocks[self.compact().free_at(&self.blocks, at)?];
            known &= self.compact().owners.can_use(block, owner);
            at = block.position + block.size;
        }
        Some(known)
    }

    /// The free block that has the byte at a position, if the owner can use it.
    fn usable_at(&self, position: u64, owner: Owner) -> Option<&Block> {
        let compact = self.compact();
        let block = &self.blocks[compact.free_at(&self.blocks, position)?];
        compact.owners.can_use(block, owner).then_some(block)
    }

    /// Free bytes become one block that is on no list.
    pub(super) fn claim_at_home(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        let (mut at, end) = (position, position + size);
        let mut whole = None;
        while at < end {
            let free = self.compact().free_at(&self.blocks, at);
            let Some(free) = free else { unreachable!("the bytes are free") };
            let Block { position: start, size, .. } = self.blocks[free];
            let len = end.min(start + size) - at;
            let part = self.claim_part(free, at - start, len, owner);
            at += len;
            whole = Some(whole.map_or(part, |whole| self.join(whole, part)));
        }
        let Some(whole) = whole else { unreachable!("requests are for some bytes") };
        whole
    }

    /// A part of a free block becomes a block that is on no list.
    pub(super) fn claim_part(&mut self, free: BlockId, offset: u64, size: u64, owner: Owner) -> BlockId {
        if offset == 0 && size < self.blocks[free].size {
            return self.claim_start(free, size, owner);
        }
        self.unlist(free);
        self.cut(free, offset, self.blocks[free].size - offset - size);
        let block = &mut self.blocks[free];
        block.state = State::Allocated;
        block.owner = owner;
        block.below = [None; 2];
        free
    }

    /// The start of a free block becomes a block that is on no list. The block goes on as the rest of it, outside the bins: what is
    /// soon put back to it touches no list.
    fn claim_start(&mut self, free: BlockId, size: u64, owner: Owner) -> BlockId {
        let Block { segment, position, pool, owner: of, previous, .. } = self.blocks[free];
        let Some(compact) = &mut self.compact else { unreachable!("only the shared arena is asked") };
        compact.owners[of].free[pool as usize].put_outside(&mut self.blocks, free);
        let start = Block::new(segment, &self.blocks.segments[segment], position, size);
        let state = State::Allocated;
        let id = self.blocks.blocks.insert(Block { state, owner, previous, next: Some(free), ..start });
        let rest = &mut self.blocks[free];
        rest.position += size;
        rest.size -= size;
        rest.previous = Some(id);
        self.blocks.link(previous, segment, id);
        id
    }

    /// A part of a chunk is held for a strip that is to show it.
    pub(super) fn hold(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        let held = self.claim_at_home(position, size, owner);
        self.blocks[held].state = State::Aliased;
        self.blocks[held].requested = 0;
        held
    }

    /// Makes one block of two neighbours that are on no list.
    fn join(&mut self, whole: BlockId, behind: BlockId) -> BlockId {
        let Block { size, next, .. } = self.blocks[behind];
        self.blocks[whole].size += size;
        self.blocks[whole].next = next;
        if let Some(next) = next {
            self.blocks[next].previous = Some(whole);
        }
        self.blocks.blocks.remove(behind);
        whole
    }

    /// Bytes from the start of a chunk that the owner can use.
    pub(super) fn lead(&self, chunk: u64, len: u64, owner: Owner) -> u64 {
        let (mut at, end) = (chunk, chunk + len);
        while at < end
            && let Some(block) = self.usable_at(at, owner)
        {
            at = end.min(block.position + block.size);
        }
        at - chunk
    }

    /// Bytes to the end of a chunk that the owner can use.
    pub(super) fn trail(&self, chunk: u64, len: u64, owner: Owner) -> u64 {
        let end = chunk + len;
        let mut at = end;
        while at > chunk
            && let Some(block) = self.usable_at(at - 1, owner)
        {
            at = chunk.max(block.position);
        }
        end - at
    }

    /// The shortest row of free blocks, of whomever, that has so many bytes: those that it has, and where it starts.
    pub(super) fn row_at_home(&self, size: u64, owner: Owner) -> Option<(u64, u64)> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        let mut last: Option<(SegmentId, u64)> = None;
        for block in self.compact().by_end.values().map(|id| &self.blocks[*id]) {
            if !self.compact().owners.can_use(block, owner) {
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
