//! Without virtual memory, chunks are segments, wherever the driver places them, and cannot be combined. While there is
//! enough room, segments are large, and requests of all sizes above 64 KiB share them. Idle ones go back before much
//! more is taken. While room is tight, large requests have segments of their own.

use super::Compact;
use super::cost_model::{CostModel, Effort, SEPARATE_FROM};
use super::epochs::Mapper;
use super::owners::Owners;
use super::plan::{Miss, Plan, fewest};
use super::ranges::ReservedRange;
use crate::alloc::arena::{AllocatedBlock, DetachedSegment};
use crate::alloc::arenas::{Parameters, settled};
use crate::alloc::blocks::{Block, BlockId, Id, Owner, Segment, SegmentId, State};
use crate::alloc::settings::{MIN_BLOCK, Request};
use crate::alloc::source::context::Grown;
use crate::types::{MIB, PoolKind};

/// Segment sizes are multiples of this, where possible.
const ROUNDING: u64 = 2 * MIB;

impl Mapper<'_> {
    /// Gives the chosen segments back, if they are completely free.
    pub(super) fn give_back_segments(&self, is_chosen: impl Fn(&Segment) -> bool) {
        let mut arena = self.arena();
        let segments = Compact::of(&mut arena).detach_idle(is_chosen);
        self.context.give_back(arena, segments);
    }

    /// Takes a segment from the driver, as free memory.
    pub(super) fn make_segment(&self, wanted: &Parameters, size: u64) -> Grown<()> {
        let (mut entered, segment) = self.context.new_segment(wanted, size)?;
        let compact = Compact::of(entered.arena());
        let owner = compact.owner(wanted.stream);
        compact.add_segment(owner, segment, compact.kind_for(&wanted.request));
        Ok(())
    }

    /// Allocates free memory of any segment.
    pub(super) fn take_from_any_segment(&mut self, wanted: &Parameters) -> Option<AllocatedBlock> {
        if self.context.driver.address_space().is_some() {
            return None;
        }
        let mut entered = self.context.arenas.settle(self.arena);
        let compact = Compact::of(entered.arena());
        let owner = compact.owner(wanted.stream);
        let separates = std::mem::take(&mut compact.separates);
        let target = compact.target_anywhere(&wanted.request, owner);
        let block = target.ok().map(|target| settled(compact.take(target, &wanted.request, owner)));
        compact.separates = separates;
        if let Some(block) = &block {
            entered.record(wanted, block);
        }
        block
    }
}

/// The requests that a segment serves while room is tight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// All, because it was made before.
    #[default]
    Any,
    /// Those that share segments.
    Shared,
    /// One large request at a time.
    Separate,
}

impl Compact {
    /// Returns the kind of segment that a request gets now.
    fn kind_for(&self, request: &Request) -> SegmentKind {
        match request.size {
            _ if !self.separates => SegmentKind::Any,
            0..=SEPARATE_FROM => SegmentKind::Shared,
            _ => SegmentKind::Separate,
        }
    }

    fn kind_of(&self, segment: SegmentId) -> SegmentKind {
        self.kinds[segment.index()]
    }

    /// Adds a segment as free memory of this owner.
    fn add_segment(&mut self, owner: Owner, new: Segment, kind: SegmentKind) {
        let Segment { size, pool, .. } = new;
        let block = self.store.blocks.add_segment(new, State::Free);
        let segment = self.store.blocks[block].segment;
        let count = self.kinds.len().max(segment.index() + 1);
        self.kinds.resize(count, SegmentKind::Any);
        self.kinds[segment.index()] = kind;
        let position = self.store.blocks[block].position;
        self.ranges.push(ReservedRange { owner, pool, segment, end: size, owned: size });
        self.chunks[pool as usize].insert(position, size);
        self.costs.reserved += size;
        self.costs.growths += 1;
        self.put_free_since(block, owner, Owners::ALWAYS_OVER);
    }

    /// Returns the first free block of an owner, from this one in best-fit order, that may serve a request.
    #[cold]
    pub(super) fn best_fit_of_kind(&self, best: BlockId, request: &Request, owner: Owner) -> Option<BlockId> {
        let free = self.store.free.of_owner(owner, request.pool);
        free.from(&self.store.blocks, best).find(|id| self.may_serve(*id, self.store.blocks[*id].size, request.size))
    }

    /// Returns whether a row of this many free bytes at a position may serve a request of `size` bytes.
    pub(super) fn may_serve_at(&self, position: u64, len: u64, size: u64) -> bool {
        !self.separates || {
            let free = self.store.free.at(&self.store.blocks, position);
            free.is_some_and(|free| self.may_serve(free, len, size))
        }
    }

    /// Returns whether `len` adjacent free bytes from the start of a block may serve a request of `size` bytes, while
    /// room is tight. A large request must fit well. Otherwise whatever it leaves over would soon be in use, and keep
    /// the segment from going back.
    fn may_serve(&self, id: BlockId, len: u64, size: u64) -> bool {
        let Block { segment, pool, .. } = self.store.blocks[id];
        let kind = self.kind_of(segment);
        match size {
            _ if pool == PoolKind::Small => true,
            0..=SEPARATE_FROM => kind != SegmentKind::Separate,
            _ => kind != SegmentKind::Shared && self.costs.is_little_left_over(size, len - size),
        }
    }

    /// Plans for a request that found no place: give idle segments back, or make one.
    pub(super) fn plan_segments(&self, miss: Miss<'_>, costs: &CostModel, largest: u64) -> Plan {
        if miss.effort == Effort::LongRun && miss.request.size <= largest {
            let leaving = self.segments_to_exchange(miss.request, costs);
            if !leaving.is_empty() {
                return Plan::Exchange(leaving);
            }
        }
        Plan::Grow(vec![self.segment_size(miss, costs, largest)])
    }

    /// Returns the size of the segment to make for a request.
    fn segment_size(&self, miss: Miss<'_>, costs: &CostModel, largest: u64) -> u64 {
        let Miss { request, owner, effort, .. } = miss;
        let kind = self.kind_for(request);
        let is_alike = |range: &&ReservedRange| {
            (range.owner, range.pool, self.kind_of(range.segment)) == (owner, request.pool, kind)
        };
        let owned = self.ranges.iter().filter(is_alike).map(|range| range.owned).sum();
        let wanted = match (effort, kind) {
            (Effort::Exact | Effort::Utmost, SegmentKind::Separate) => return request.size,
            (Effort::Exact | Effort::Utmost, _) => 0,
            (Effort::LongRun, SegmentKind::Any) => costs.segment(request.pool, owned),
            (Effort::LongRun, SegmentKind::Shared) => costs.segment(PoolKind::Small, owned),
            (Effort::LongRun, SegmentKind::Separate) => {
                let largest = largest - largest % MIN_BLOCK;
                return costs.separate_segment(request.size).min(largest).max(request.size);
            }
        };
        let largest = largest - largest % ROUNDING.min(largest).max(1);
        let size = request.size.max(wanted).next_multiple_of(ROUNDING);
        size.min(largest).max(request.size)
    }

    /// Returns the positions of the idle segments to give back to limit the reserved memory: as few as suffice, or none
    /// if it is not worth it.
    fn segments_to_exchange(&self, request: &Request, costs: &CostModel) -> Vec<u64> {
        let more = request.size.next_multiple_of(ROUNDING);
        let Some(excess) = costs.excess(request.pool, more) else { return Vec::new() };
        let mut idle: Vec<_> = self.idle().map(|(_, segment)| (segment.size, segment.position)).collect();
        idle.sort_unstable();
        let (chosen, bytes) = fewest(idle, excess);
        if costs.is_worth_giving_back(chosen.len(), bytes, more) { chosen } else { Vec::new() }
    }

    /// Returns the segments that are completely free.
    fn idle(&self) -> impl Iterator<Item = (usize, &Segment)> {
        let segments = self.ranges.iter().map(|range| range.segment).enumerate();
        segments.filter_map(|(range, id)| {
            let is_free = self.store.blocks.of_segment(id).all(|(_, block)| block.state == State::Free);
            is_free.then(|| (range, self.store.blocks.segment(id)))
        })
    }

    /// Removes the chosen segments, if they are completely free.
    pub(super) fn detach_idle(&mut self, is_chosen: impl Fn(&Segment) -> bool) -> Vec<DetachedSegment> {
        let chosen = self.idle().filter(|(_, segment)| is_chosen(segment)).map(|(range, _)| range);
        let chosen: Vec<usize> = chosen.collect();
        let detached = chosen.into_iter().enumerate().map(|(before, range)| {
            let ReservedRange { owner, pool, segment, owned, .. } = self.ranges.remove(range - before);
            self.chunks[pool as usize].remove(&self.store.blocks.segment(segment).position);
            self.costs.reserved -= owned;
            self.store.detach_segment(segment, self.owners[owner].stream)
        });
        detached.collect()
    }
}

#[cfg(test)]
mod tests;
