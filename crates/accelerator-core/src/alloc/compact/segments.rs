//! Where the backend has no virtual memory, chunks are segments, each wherever the driver puts it: nothing can be put together. So
//! segments are large and shared by requests of all sizes above 64 KiB, and those that lie idle go back before much more is taken.

use super::homes::Home;
use super::owners::Owner;
use super::plan::{Thrift, fewest};
use crate::alloc::arena::{Arena, Taken};
use crate::alloc::block::{Block, BlockId, Segment, SegmentId, State};
use crate::alloc::ladder::{Asked, Grown};
use crate::alloc::policy::Request;
use crate::alloc::whole::Detached;
use crate::alloc::{CachingAllocator, segment};
use crate::backend::{Backend, DevicePtr};
use crate::types::{MIB, OutOfMemoryCause, Result, StreamId};

/// What segments are multiples of, where they can be.
const ROUNDING: u64 = 2 * MIB;

/// What is to be done next.
enum Step<P> {
    Done(Taken<P>),
    /// A segment of so many bytes is made.
    Make(u64),
    /// Segments go back.
    GiveBack(Vec<SegmentId>),
}

impl<B: Backend> CachingAllocator<B> {
    /// Makes a segment for a request and takes it there.
    pub(super) fn grow_segments(&self, asked: &Asked<B>) -> Result<Grown<B::Ptr>> {
        let mut refused = OutOfMemoryCause::Device;
        for thrift in [Thrift::InTheLongRun, Thrift::Exact] {
            match self.take_from_segments(asked, thrift)? {
                Grown::Refused(cause) => refused = cause,
                taken => return Ok(taken),
            }
        }
        Ok(Grown::Refused(refused))
    }

    fn take_from_segments(&self, asked: &Asked<B>, thrift: Thrift) -> Result<Grown<B::Ptr>> {
        loop {
            match self.next_segment_step(asked, thrift) {
                Step::Done(taken) => return Ok(Grown::Taken(taken)),
                Step::GiveBack(segments) => {
                    let idle = |arena: &Arena<B::Ptr>, id| arena.is_free(&arena.blocks.segments[id]);
                    self.give_back(self.arena(StreamId::SHARED), |arena| {
                        let still = segments.into_iter().filter_map(|id| {
                            if idle(arena, id) { Some(arena.detach_segment(id)) } else { None }
                        });
                        still.collect()
                    });
                }
                Step::Make(size) => {
                    if let Err(refused) = self.make_segment(asked, size)? {
                        return Ok(Grown::Refused(refused));
                    }
                }
            }
        }
    }

    fn next_segment_step(&self, asked: &Asked<B>, thrift: Thrift) -> Step<B::Ptr> {
        let largest = self.backend.properties().largest_allocation;
        self.settled(self.arena(StreamId::SHARED).lock(), |arena, books| {
            let owner = arena.owner_number(asked.stream.id());
            if let Some(place) = arena.place_anywhere(&asked.request, owner) {
                let taken = arena.take_at(place, &asked.request, owner)?;
                asked.record(books, &taken);
                return Ok(Step::Done(taken));
            }
            let leaving = match thrift {
                Thrift::InTheLongRun if asked.request.size <= largest => {
                    arena.segments_to_exchange(&asked.request)
                }
                _ => Vec::new(),
            };
            if !leaving.is_empty() {
                arena.compact_mut().stitches += 1;
                return Ok(Step::GiveBack(leaving));
            }
            Ok(Step::Make(arena.segment_size(&asked.request, owner, thrift, largest)))
        })
    }

    /// Takes a segment from the driver: free memory. Why not, if that was refused.
    fn make_segment(&self, asked: &Asked<B>, size: u64) -> Result<Result<(), OutOfMemoryCause>> {
        let _asking = match self.charge(asked, size) {
            Ok(asking) => asking,
            Err(cause) => return Ok(Err(cause)),
        };
        let ptr = match segment::take(self.backend, size) {
            Ok(ptr) => ptr,
            Err(error) => return self.segment_refused(size, error).map(Err),
        };
        self.settled(self.arena(StreamId::SHARED).lock(), |arena, books| {
            let owner = arena.owner_number(asked.stream.id());
            let created = books.segment_made(&arena.config, asked.request.pool, size);
            arena.add_segment_of(owner, ptr, size, created, &asked.request);
            if let Some(recorder) = &mut books.recorder {
                let address = ptr.trace_address();
                recorder.segment_made(address, size, asked.stream.id(), asked.context.clone());
            }
            Ok(())
        });
        Ok(Ok(()))
    }
}

impl<P: DevicePtr> Arena<P> {
    /// Takes in a segment: free memory of this owner.
    fn add_segment_of(&mut self, owner: Owner, ptr: P, size: u64, created: u64, request: &Request) {
        let pool = request.pool;
        let block = self.blocks.add_segment(ptr, size, created, pool, None);
        let segment = self.blocks[block].segment;
        let position = self.blocks[block].position;
        let compact = self.compact_mut();
        compact.homes.push(Home { owner, pool, segment, end: size, owned: size });
        compact.chunks[pool as usize].insert(position, size);
        compact.reserved += size;
        compact.growths += 1;
        self.put_fresh(block, owner);
    }

    /// Bytes of the segment to make for a request.
    fn segment_size(&self, request: &Request, owner: Owner, thrift: Thrift, largest: u64) -> u64 {
        let homes = self.compact().homes.iter();
        let own = homes.filter(|home| (home.owner, home.pool) == (owner, request.pool));
        let owned = own.map(|home| home.owned).sum();
        let wanted = match thrift {
            Thrift::InTheLongRun => self.means(request).segment(request.pool, owned),
            Thrift::Exact | Thrift::AtAnyPrice => 0,
        };
        let largest = largest - largest % ROUNDING.min(largest).max(1);
        let size = request.size.max(wanted).next_multiple_of(ROUNDING);
        size.min(largest).max(request.size)
    }

    /// The idle segments to give back, the fewest that do, so that what is reserved stays little; none, if that is not worth it.
    fn segments_to_exchange(&self, request: &Request) -> Vec<SegmentId> {
        let means = self.means(request);
        let more = request.size.next_multiple_of(ROUNDING);
        let Some(excess) = means.excess(request.pool, more) else { return Vec::new() };
        let mut idle = self.idle_segments();
        idle.sort_unstable();
        let (chosen, bytes) = fewest(idle, excess);
        if means.is_worth_giving_back(chosen.len(), bytes, more) { chosen } else { Vec::new() }
    }

    /// The segments of which all is free, each with its size.
    fn idle_segments(&self) -> Vec<(u64, SegmentId)> {
        let homes = self.compact().homes.iter().map(|home| home.segment);
        let segments =
            homes.map(|id| (id, &self.blocks.segments[id])).filter(|(_, segment)| segment.page.is_none());
        let idle = segments.filter(|(_, segment)| self.is_free(segment));
        idle.map(|(id, segment)| (segment.size, id)).collect()
    }

    fn is_free(&self, segment: &Segment<P>) -> bool {
        let blocks = std::iter::successors(segment.first, |id| self.blocks[*id].next);
        blocks.map(|id| &self.blocks[id]).all(|block| block.state == State::Free)
    }

    /// Takes all segments out of the books of which all is free.
    pub(super) fn detach_idle_segments(&mut self) -> Vec<Detached<P>> {
        let idle = self.idle_segments();
        idle.into_iter().map(|(_, segment)| self.detach_segment(segment)).collect()
    }

    /// Takes a segment out of the books of which all is free.
    fn detach_segment(&mut self, id: SegmentId) -> Detached<P> {
        let Segment { ptr, size, pool, position, first, .. } = self.blocks.segments[id];
        let mut next: Option<BlockId> = first;
        while let Some(block) = next {
            Block { next, .. } = self.blocks[block];
            self.unlist(block);
            self.blocks.blocks.remove(block);
        }
        self.blocks.segments[id].first = None;
        self.blocks.segments.remove(id);
        let stream = self.stream_of_segment(id);
        let compact = self.compact_mut();
        compact.homes.retain(|home| home.segment != id);
        compact.chunks[pool as usize].remove(&position);
        compact.reserved -= size;
        Detached { ptr, size, pool, stream }
    }
}
