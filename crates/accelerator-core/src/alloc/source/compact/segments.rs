//! Without virtual memory, chunks are segments, wherever the driver places them, and cannot be combined. Segments are
//! therefore large, and requests of all sizes above 64 KiB share them. Idle ones go back before much more is taken.

use super::Compact;
use super::cost_model::{CostModel, Effort};
use super::epochs::Mapper;
use super::owners::Owners;
use super::plan::{Miss, Plan, fewest};
use super::ranges::ReservedRange;
use crate::alloc::arena::DetachedSegment;
use crate::alloc::arenas::Parameters;
use crate::alloc::blocks::{Owner, Segment, State};
use crate::alloc::settings::Request;
use crate::alloc::source::context::Grown;
use crate::types::MIB;

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
        compact.add_segment(owner, segment);
        Ok(())
    }
}

impl Compact {
    /// Adds a segment as free memory of this owner.
    fn add_segment(&mut self, owner: Owner, new: Segment) {
        let Segment { size, pool, .. } = new;
        let block = self.store.blocks.add_segment(new, State::Free);
        let segment = self.store.blocks[block].segment;
        let position = self.store.blocks[block].position;
        self.ranges.push(ReservedRange { owner, pool, segment, end: size, owned: size });
        self.chunks[pool as usize].insert(position, size);
        self.costs.reserved += size;
        self.costs.growths += 1;
        self.put_free_since(block, owner, Owners::ALWAYS_OVER);
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
        let ranges = self.ranges.iter();
        let own = ranges.filter(|range| (range.owner, range.pool) == (owner, request.pool));
        let owned = own.map(|range| range.owned).sum();
        let wanted = match effort {
            Effort::LongRun => costs.segment(request.pool, owned),
            Effort::Exact | Effort::Utmost => 0,
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
