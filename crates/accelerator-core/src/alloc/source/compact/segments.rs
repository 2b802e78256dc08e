//! Where the backend has no virtual memory, chunks are segments, each wherever the driver puts it: nothing can be put together. So
//! segments are large and shared by requests of all sizes above 64 KiB, and those that lie idle go back before much more is taken.

use super::Compact;
use super::epochs::Mapper;
use super::plan::{Effort, fewest};
use super::ranges::ReservedRange;
use crate::alloc::arena::{AllocatedBlock, DetachedSegment};
use crate::alloc::arenas::{Parameters, settled};
use crate::alloc::blocks::{NewSegment, Owner, Segment, SegmentId, State};
use crate::alloc::settings::Request;
use crate::alloc::source::context::Failure;
use crate::types::{MIB, PoolKind, StreamId};

/// What segments are multiples of, where they can be.
const ROUNDING: u64 = 2 * MIB;

/// What is to be done next.
enum Action {
    Done(AllocatedBlock),
    /// A segment of so many bytes is made.
    Make(u64),
    /// Segments go back.
    GiveBack(Vec<SegmentId>),
}

impl Mapper<'_> {
    /// Makes a segment for a request, and allocates it there.
    pub(super) fn grow_segments(&self, wanted: &Parameters) -> Result<AllocatedBlock, Failure> {
        match self.take_from_segments(wanted, Effort::LongRun) {
            Err(Failure::Refused(_)) => self.take_from_segments(wanted, Effort::Exact),
            grown => grown,
        }
    }

    fn take_from_segments(&self, wanted: &Parameters, effort: Effort) -> Result<AllocatedBlock, Failure> {
        loop {
            match self.next_segment_action(wanted, effort) {
                Action::Done(block) => return Ok(block),
                Action::GiveBack(segments) => {
                    let mut arena = self.arena();
                    let segments = Compact::of(&mut arena).detach_free(segments);
                    self.context.give_back(arena, segments);
                }
                Action::Make(size) => self.make_segment(wanted, size)?,
            }
        }
    }

    fn next_segment_action(&self, wanted: &Parameters, effort: Effort) -> Action {
        let largest = self.context.driver.properties().largest_allocation;
        let mut entered = self.context.arenas.settle(StreamId::SHARED);
        let compact = Compact::of(entered.arena());
        let owner = compact.owner(wanted.stream);
        if let Some(target) = compact.target_anywhere(&wanted.request, owner) {
            let block = settled(compact.take_at(target, &wanted.request, owner));
            entered.record(wanted, &block);
            return Action::Done(block);
        }
        let leaving = match effort {
            Effort::LongRun if wanted.request.size <= largest => {
                compact.segments_to_exchange(&wanted.request)
            }
            _ => Vec::new(),
        };
        if leaving.is_empty() {
            return Action::Make(compact.segment_size(&wanted.request, owner, effort, largest));
        }
        compact.rearranged += 1;
        Action::GiveBack(leaving)
    }

    /// Takes a segment from the driver: free memory.
    fn make_segment(&self, wanted: &Parameters, size: u64) -> Result<(), Failure> {
        let context = self.context;
        let mut charge = context.charge(StreamId::SHARED, size)?;
        let base = context.alloc(size)?;
        charge.use_up(size);
        let mut entered = context.arenas.settle(StreamId::SHARED);
        let segment = entered.segment_made(base, size, wanted);
        let compact = Compact::of(entered.arena());
        let owner = compact.owner(wanted.stream);
        compact.add_segment(owner, segment);
        Ok(())
    }
}

impl Compact {
    /// Takes in a segment: free memory of this owner.
    fn add_segment(&mut self, owner: Owner, new: NewSegment) {
        let NewSegment { size, pool, .. } = new;
        let block = self.store.blocks.add_segment(new, State::Free);
        let segment = self.store.blocks[block].segment;
        let position = self.store.blocks[block].position;
        self.ranges.push(ReservedRange { owner, pool, segment, end: size, owned: size });
        self.chunks[pool as usize].insert(position, size);
        self.reserved += size;
        self.growths += 1;
        self.put_fresh(block, owner);
    }

    /// Bytes of the segment to make for a request.
    fn segment_size(&self, request: &Request, owner: Owner, effort: Effort, largest: u64) -> u64 {
        let ranges = self.ranges.iter();
        let own = ranges.filter(|range| (range.owner, range.pool) == (owner, request.pool));
        let owned = own.map(|range| range.owned).sum();
        let wanted = match effort {
            Effort::LongRun => self.cost_model(request).segment(request.pool, owned),
            Effort::Exact | Effort::Utmost => 0,
        };
        let largest = largest - largest % ROUNDING.min(largest).max(1);
        let size = request.size.max(wanted).next_multiple_of(ROUNDING);
        size.min(largest).max(request.size)
    }

    /// The idle segments to give back, the fewest that do, so that what is reserved stays little; none, if that is not worth it.
    fn segments_to_exchange(&self, request: &Request) -> Vec<SegmentId> {
        let costs = self.cost_model(request);
        let more = request.size.next_multiple_of(ROUNDING);
        let Some(excess) = costs.excess(request.pool, more) else { return Vec::new() };
        let mut idle = self.idle_segments();
        idle.sort_unstable();
        let (chosen, bytes) = fewest(idle, excess);
        if costs.is_worth_giving_back(chosen.len(), bytes, more) { chosen } else { Vec::new() }
    }

    /// The segments of which all is free, each with its size.
    fn idle_segments(&self) -> Vec<(u64, SegmentId)> {
        let segments = self.ranges.iter().map(|range| range.segment);
        let idle = segments
            .filter(|id| self.store.blocks.segment(*id).page.is_none() && self.is_free(*id))
            .map(|id| (self.store.blocks.segment(id).size, id));
        idle.collect()
    }

    fn is_free(&self, segment: SegmentId) -> bool {
        self.store.blocks.of_segment(segment).all(|(_, block)| block.state == State::Free)
    }

    /// Removes all segments of a pool of which all is free.
    pub(super) fn detach_idle_segments(&mut self, pool: PoolKind) -> Vec<DetachedSegment> {
        let mut idle = self.idle_segments();
        idle.retain(|(_, id)| self.store.blocks.segment(*id).pool == pool);
        idle.into_iter().map(|(_, segment)| self.detach_segment(segment)).collect()
    }

    /// Removes those of the segments of which all is free still.
    fn detach_free(&mut self, mut segments: Vec<SegmentId>) -> Vec<DetachedSegment> {
        segments.retain(|id| self.is_free(*id));
        segments.into_iter().map(|id| self.detach_segment(id)).collect()
    }

    /// Removes a segment of which all is free.
    fn detach_segment(&mut self, id: SegmentId) -> DetachedSegment {
        let Segment { size, pool, position, .. } = *self.store.blocks.segment(id);
        let range = self.ranges.iter().position(|range| range.segment == id);
        let Some(range) = range else { unreachable!("every segment here is a range") };
        let owner = self.ranges.remove(range).owner;
        self.chunks[pool as usize].remove(&position);
        self.reserved -= size;
        let stream = self.owners[owner].stream;
        self.store.detach_segment(id, stream)
    }
}
