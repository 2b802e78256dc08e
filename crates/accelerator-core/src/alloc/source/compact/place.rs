//! Finding a place for a request, and freeing blocks.

use super::{Compact, SMALL_SIZE};
use crate::alloc::arena::{AllocatedBlock, Count, Placement, Store};
use crate::alloc::blocks::{Block, BlockId, Owner, SegmentId, State};
use crate::alloc::settings::Request;
use crate::alloc::stats::{Counted, Counting, Pair};
use crate::types::{PoolKind, StreamId};

/// The place for a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// In a free block, at this offset from its start.
    In(BlockId, u64),
    /// At this position. The bytes are free, in a reserved range or an alias range.
    At(u64),
}

impl Placement for Compact {
    fn store(&self) -> &Store {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    fn take(&mut self, request: &Request, stream: StreamId) -> Counting<Option<AllocatedBlock>> {
        let Some(owner) = self.owners.number(stream) else { return Ok(None) };
        let Some(target) = self.target_for(request, owner, false) else { return Ok(None) };
        self.take_at(target, request, owner).map(Some)
    }

    /// Makes a block free and merges it with adjacent free memory.
    fn put_back(&mut self, id: BlockId, count: Count) -> Counting {
        let Block { pool, size, requested, owner, position, .. } = self.store.blocks[id];
        count(&mut self.store.counters, counted(&Request { requested, size, pool }))?;
        self.costs.requested -= requested;
        self.owners.freed(owner, size, self.costs.reserved);
        match self.alias_at(position) {
            Some(alias) => self.free_in_alias(alias, id),
            None => self.put_free(id, owner),
        }
        Ok(())
    }

    fn limits_splits(&self) -> bool {
        false
    }

    fn stream_of(&self, id: BlockId) -> StreamId {
        self.owners[self.store.blocks[id].owner].stream
    }

    fn stream_of_segment(&self, segment: SegmentId) -> StreamId {
        let range = self.ranges.iter().find(|range| range.segment == segment);
        range.map_or(self.store.stream, |range| self.owners[range.owner].stream)
    }

    fn free_in_used_chunks(&self) -> u64 {
        self.ranges.iter().map(|range| self.free_in_used_chunks_of(range)).sum()
    }

    fn has_ranges(&self) -> bool {
        !(self.ranges.is_empty() && self.aliases.is_empty())
    }

    fn aliases(&self) -> Vec<(SegmentId, Vec<BlockId>)> {
        let used = self.aliases.values().filter(|alias| !alias.blocks.is_empty());
        used.map(|alias| (alias.segment, alias.blocks.iter().copied().collect())).collect()
    }
}

/// Returns the request under this policy, whose small pool has smaller blocks.
pub(super) fn with_pool(request: Request) -> Request {
    let pool = if request.size <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large };
    Request { pool, ..request }
}

fn counted(request: &Request) -> Counted {
    let Request { requested, size: bytes, pool } = *request;
    Counted { pool, bytes, requested, oversize: false, split: Pair::default() }
}

impl Compact {
    /// Returns the place that the same request had before, or else the best fit. Other streams may have used that
    /// place. If it is not known whether they have finished, returns `None`; with `has_polled`, after polling, returns
    /// the best fit.
    pub(super) fn target_for(&self, request: &Request, owner: Owner, has_polled: bool) -> Option<Target> {
        let is_logged = request.pool == PoolKind::Large;
        let places = is_logged.then(|| self.owners[owner].log.predicted(request.size));
        for position in places.into_iter().flatten() {
            // Usually all of it is in one free block.
            let free = self.store.free.at(&self.store.blocks, position);
            if let Some((free, block)) = free.map(|free| (free, &self.store.blocks[free]))
                && block.owner == owner
                && position + request.size <= block.end()
            {
                return Some(Target::In(free, position - block.position));
            }
            match self.can_use(position, request.size, owner) {
                Some(true) => return Some(Target::At(position)),
                // Polling is worthwhile, and only a miss polls.
                Some(false) if !has_polled => return None,
                _ => {}
            }
        }
        let free = self.store.free.of_owner(owner, request.pool);
        let best = free.best_fit(&self.store.blocks, request.size);
        best.map(|free| Target::In(free, self.lead(free, request.size)))
    }

    /// Returns how many bytes at the start of a free block to leave free ahead of a request for whole pages, so that it
    /// begins at the start of a page. If that would waste much of a page, returns 0.
    fn lead(&self, free: BlockId, size: u64) -> u64 {
        let block = &self.store.blocks[free];
        let lead = block.position.wrapping_neg() & self.within_page;
        let is_whole = size & self.within_page == 0 && lead <= self.within_page / 8 * 3;
        if is_whole && size + lead <= block.size { lead } else { 0 }
    }

    /// Allocates the bytes at this place.
    pub(super) fn take_at(&mut self, target: Target, request: &Request, owner: Owner) -> Counting<AllocatedBlock> {
        let Request { requested, size, pool } = *request;
        self.store.counters.given_out(counted(request))?;
        let id = match target {
            Target::In(free, offset) => self.store.claim_part(free, offset, size, owner),
            Target::At(position) => self.claim(position, size, owner),
        };
        let block = &mut self.store.blocks[id];
        block.requested = requested;
        if pool == PoolKind::Large {
            self.owners[owner].log.note(size, block.position);
        }
        self.costs = self.costs.with(requested);
        Ok(self.store.allocated(id))
    }

    /// Turns usable bytes into a block.
    fn claim(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        match self.alias_at(position) {
            Some(alias) => self.claim_in_alias(alias, position, size, owner),
            None => self.store.claim(position, size, owner),
        }
    }

    /// Returns whether the owner can use these bytes: `None` if they are not all free, false if work on them may still
    /// be running.
    pub(super) fn can_use(&self, position: u64, size: u64, owner: Owner) -> Option<bool> {
        match self.alias_at(position) {
            Some(alias) => self.can_use_in_alias(alias, position, size, owner),
            None => self.can_use_in_range(position, size, owner),
        }
    }

    /// Frees a block that is on no list, as bytes that this owner has just finished with.
    pub(super) fn put_free(&mut self, id: BlockId, owner: Owner) {
        let epoch = self.owners.open_epoch(owner);
        self.put_free_since(id, owner, epoch);
    }

    /// As [`put_free`](Self::put_free), for bytes that this owner finished with in an earlier epoch.
    pub(super) fn put_free_since(&mut self, id: BlockId, owner: Owner, epoch: u32) {
        let blocks = &self.store.blocks;
        let (before, behind) = blocks.alike(id, State::Free, owner);
        let since = |id: Option<BlockId>| id.map_or(0, |id| blocks[id].free_since);
        let free_since = epoch.max(since(before)).max(since(behind));
        self.store.list_free::<false>(id, owner, free_since, (before, behind));
    }

    /// Returns the number of a stream that has requested memory here.
    pub(super) fn owner(&self, stream: StreamId) -> Owner {
        self.owners.number(stream).unwrap_or_else(|| unreachable!("the stream has a number"))
    }
}
