//! Finding a place for a request, and freeing blocks.

use super::placement_log::{Place, Precedent};
use super::{Compact, SMALL_SIZE};
use crate::alloc::arena::{AllocatedBlock, Count, Placement, Store};
use crate::alloc::blocks::{Block, BlockId, Owner, SegmentId, State};
use crate::alloc::settings::Request;
use crate::alloc::stats::{Counted, Counting, Pair, StreamCounters};
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

    fn take_at_once(&mut self, request: &Request, stream: StreamId) -> Option<AllocatedBlock> {
        if self.owners.is_due() {
            return None;
        }
        self.take_for(&with_pool(*request), stream).ok()?
    }

    fn take(&mut self, request: &Request, stream: StreamId) -> Counting<Option<AllocatedBlock>> {
        self.take_for(request, stream)
    }

    fn free_at_once(&mut self, id: BlockId) -> bool {
        !self.store.blocks[id].uses.are_any() && self.free(id, StreamCounters::freed).is_ok()
    }

    fn put_back(&mut self, id: BlockId, count: Count) -> Counting {
        self.free(id, count)
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

    #[cfg(debug_assertions)]
    fn check(&self) {
        self.check_parts();
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
    /// Allocates free bytes, if that needs neither the driver nor another stream.
    #[inline(always)]
    fn take_for(&mut self, request: &Request, stream: StreamId) -> Counting<Option<AllocatedBlock>> {
        let Some(owner) = self.owners.number(stream) else { return Ok(None) };
        if request.pool == PoolKind::Small {
            let Some((free, offset)) = self.best_fit(request, owner) else { return Ok(None) };
            return self.take_in(free, offset, request, owner, None).map(Some);
        }
        let precedent = self.owners[owner].log.precedent(request.size);
        match self.target_for(request, owner, precedent, false) {
            None => Ok(None),
            Some(Target::In(free, offset)) => self.take_in(free, offset, request, owner, Some(precedent)).map(Some),
            Some(Target::At(position)) => self.take_at(position, request, owner).map(Some),
        }
    }

    /// Makes a block free and merges it with adjacent free memory. Inlined once for each `count`.
    #[inline(always)]
    fn free(&mut self, id: BlockId, count: Count) -> Counting {
        let Block { pool, size, requested, owner, segment, below, .. } = self.store.blocks[id];
        count(&mut self.store.counters, counted(&Request { requested, size, pool }))?;
        self.costs.requested -= requested;
        let epoch = self.owners.freed(owner, size, self.costs.reserved);
        match below[0] {
            Some(_) => self.free_in_alias(self.store.blocks.segment(segment).position, id),
            None => self.put_free_since(id, owner, epoch),
        }
        Ok(())
    }

    /// Returns the place that the same request had before, or else the best fit. Other streams may have used that
    /// place. If it is not known whether they have finished, returns `None`; with `has_polled`, after polling, returns
    /// the best fit.
    #[inline(always)]
    pub(super) fn target_for(
        &self,
        request: &Request,
        owner: Owner,
        precedent: Precedent,
        has_polled: bool,
    ) -> Option<Target> {
        let log = &self.owners[owner].log;
        if let Some(Place { segment, position }) = log.last(precedent) {
            // Usually the place is in the block that was split or freed last, or else all of it is in one free block.
            let (blocks, free) = (&self.store.blocks, &self.store.free);
            let contains = |id: &BlockId| {
                let block = &blocks[*id];
                block.position <= position && position + request.size <= block.end()
            };
            let is_own = |id: &BlockId| blocks[*id].owner == owner;
            let latest = free.of_owner(owner, PoolKind::Large).outside().filter(contains);
            let there = latest.or_else(|| free.at_in(blocks, segment, position));
            if let Some(free) = there.filter(is_own).filter(contains) {
                return Some(Target::In(free, position - blocks[free].position));
            }
            match self.earlier_place(precedent, there, request.size, owner) {
                Some((position, true)) => return Some(Target::At(position)),
                // Polling is worthwhile, and only a miss polls.
                Some((_, false)) if !has_polled => return None,
                _ => {}
            }
        }
        self.best_fit(request, owner).map(|(free, offset)| Target::In(free, offset))
    }

    /// Returns the position of the last place of a request that is free now, and whether the owner can use it. Other
    /// streams may have used it, and it may consist of several blocks. `there` is the free block at the last place.
    #[inline(never)]
    fn earlier_place(
        &self,
        precedent: Precedent,
        there: Option<BlockId>,
        size: u64,
        owner: Owner,
    ) -> Option<(u64, bool)> {
        let (log, Store { blocks, free, .. }) = (&self.owners[owner].log, &self.store);
        let if_free = |Place { segment, position }, there: Option<BlockId>| {
            let can_use = match blocks.segment(segment).first {
                Some(_) => self.can_use_from(there?, position + size, owner),
                None => self.can_use(position, size, owner), // an alias, or a segment that is gone
            };
            can_use.map(|can_use| (position, can_use))
        };
        log.last(precedent).and_then(|place| if_free(place, there)).or_else(|| {
            let before = log.last_but_one(precedent)?;
            if_free(before, free.at_in(blocks, before.segment, before.position))
        })
    }

    /// Returns the best-fitting free block, and the offset in it at which to allocate.
    #[inline(always)]
    pub(super) fn best_fit(&self, request: &Request, owner: Owner) -> Option<(BlockId, u64)> {
        let free = self.store.free.of_owner(owner, request.pool);
        let best = free.best_fit(&self.store.blocks, request.size)?;
        if self.separates {
            return self.best_fit_of_kind(best, request, owner).map(|best| (best, 0));
        }
        Some((best, self.lead(best, request.size)))
    }

    /// Returns how many bytes at the start of a free block to leave free ahead of a request for whole pages, so that it
    /// begins at the start of a page. If that would waste much of a page, returns 0.
    #[inline(always)]
    fn lead(&self, free: BlockId, size: u64) -> u64 {
        if self.within_page == 0 {
            return 0;
        }
        let block = &self.store.blocks[free];
        let lead = block.position.wrapping_neg() & self.within_page;
        let is_whole = size & self.within_page == 0 && lead <= self.within_page / 8 * 3;
        if is_whole && size + lead <= block.size { lead } else { 0 }
    }

    /// Allocates the bytes at this place, which a miss found.
    pub(super) fn take(&mut self, target: Target, request: &Request, owner: Owner) -> Counting<AllocatedBlock> {
        match target {
            Target::In(free, offset) => {
                let is_logged = request.pool == PoolKind::Large;
                let precedent = is_logged.then(|| self.owners[owner].log.precedent(request.size));
                self.take_in(free, offset, request, owner, precedent)
            }
            Target::At(position) => self.take_at(position, request, owner),
        }
    }

    /// Allocates a part of a free block.
    #[inline(always)]
    fn take_in(
        &mut self,
        free: BlockId,
        offset: u64,
        request: &Request,
        owner: Owner,
        precedent: Option<Precedent>,
    ) -> Counting<AllocatedBlock> {
        self.store.counters.given_out(counted(request))?;
        self.costs.count(request.requested);
        if let Some(precedent) = precedent {
            let Block { segment, position, .. } = self.store.blocks[free];
            self.owners[owner].log.note(request.size, precedent, Place { segment, position: position + offset });
        }
        Ok(self.store.take_part(free, offset, request, owner))
    }

    /// Allocates the bytes of the large pool at this position, which are free, in a reserved range or an alias range.
    #[inline(never)]
    fn take_at(&mut self, position: u64, request: &Request, owner: Owner) -> Counting<AllocatedBlock> {
        self.store.counters.given_out(counted(request))?;
        self.costs.count(request.requested);
        let id = self.claim(position, request.size, owner);
        let block = &mut self.store.blocks[id];
        block.requested = request.requested;
        let place = Place { segment: block.segment, position };
        let log = &mut self.owners[owner].log;
        log.note(request.size, log.precedent(request.size), place);
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
    #[inline(always)]
    pub(super) fn put_free(&mut self, id: BlockId, owner: Owner) {
        let epoch = self.owners.open_epoch(owner);
        self.put_free_since(id, owner, epoch);
    }

    /// As [`put_free`](Self::put_free), for bytes that this owner finished with in an earlier epoch.
    #[inline(always)]
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

#[cfg(test)]
mod tests;
