//! The policy `compact`: little more memory than was ever asked for at once. ARCHITECTURE explains it from the start.
//!
//! The blocks of all streams lie in one arena, that of [`StreamId::SHARED`]. From the bottom: [`journal`] knows where earlier
//! requests went; [`owners`] who may use a free block; [`homes`] the chunks of memory, each at its own address, and [`strips`]
//! the addresses where several of them show once more, one behind the other; [`growth`] is arithmetic; [`plan`] chooses what a
//! miss does; [`memory`] alone calls the driver for memory, [`epochs`] asks it what is over; [`miss`] and [`release`] bring books
//! and driver together.
//! [`segments`] is what is left of that without virtual memory.

mod epochs;
mod growth;
mod homes;
mod journal;
mod memory;
mod miss;
mod owners;
mod plan;
mod release;
mod segments;
mod strips;

use std::collections::BTreeMap;

use self::homes::Home;
pub(super) use self::memory::Memory;
pub(super) use self::owners::Owner;
use self::owners::Owners;
use self::strips::Strip;
use super::account::{Account, Counted, NoRoom};
use super::arena::{Arena, Taken};
use super::block::{Block, BlockId, Blocks, Segment, SegmentId, State};
use super::free_list::FreeList;
use super::pair::Pair;
use super::policy::Request;
use crate::backend::DevicePtr;
use crate::types::{PoolKind, StreamId};

/// The largest request, rounded, of the small pool. Under PyTorch's policy it is 1 MiB; here that leaves less memory idle in
/// one pool while the other is at its peak.
const SMALL_SIZE: u64 = 64 << 10;

/// What the policy knows beside the blocks of its arena.
#[derive(Debug, Default)]
pub(super) struct Compact {
    pub(super) owners: Owners,
    /// The free blocks of the large pool by the position of their end: to cut off their start changes nothing here.
    by_end: BTreeMap<u64, BlockId>,
    homes: Vec<Home>,
    /// Lengths of the chunks of each pool, by position.
    chunks: [BTreeMap<u64, u64>; 2],
    /// By the position of their start.
    strips: BTreeMap<u64, Strip>,
    /// Bytes of all chunks.
    reserved: u64,
    /// Bytes that were asked for, of all blocks in use.
    requested: u64,
    peak_requested: u64,
    /// How often chunks were made.
    growths: u64,
    /// How often a strip was made, or memory was given back for other.
    stitches: u64,
    /// How many strips were used.
    uses: u64,
}

/// Where a request is to go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// To a free block, so many bytes behind its start.
    In(BlockId, u64),
    /// To these bytes, which are free, in a home or in a strip.
    At(u64),
}

/// The pool of a request under this policy.
pub(super) fn pool(size: u64) -> PoolKind {
    if size <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large }
}

impl Compact {
    /// The free blocks of each owner.
    pub(super) fn free_lists(&self, pool: PoolKind) -> impl Iterator<Item = &FreeList> {
        self.owners.iter().map(move |owner| &owner.free[pool as usize])
    }

    pub(super) fn list<P>(&mut self, blocks: &mut Blocks<P>, id: BlockId) {
        let Block { pool, position, size, owner, .. } = blocks[id];
        self.owners[owner].free[pool as usize].insert(blocks, id);
        if pool == PoolKind::Large {
            self.by_end.insert(position + size, id);
        }
    }

    pub(super) fn unlist<P>(&mut self, blocks: &mut Blocks<P>, id: BlockId) {
        let Block { pool, position, size, owner, .. } = blocks[id];
        self.owners[owner].free[pool as usize].remove(blocks, id);
        if pool == PoolKind::Large {
            self.by_end.remove(&(position + size));
        }
    }

    /// The free block of the large pool that has the byte at a position, if there is one.
    fn free_at<P>(&self, blocks: &Blocks<P>, position: u64) -> Option<BlockId> {
        let (_, id) = self.by_end.range(position + 1..).next()?;
        (blocks[*id].position <= position).then_some(*id)
    }
}

impl<P: DevicePtr> Arena<P> {
    /// Gives out bytes that are free, if that needs nothing of the driver and no other stream is to be asked.
    pub(super) fn take_compact(
        &mut self,
        request: &Request,
        stream: StreamId,
    ) -> Result<Option<Taken<P>>, NoRoom> {
        let Some(owner) = self.compact().owners.number(stream) else { return Ok(None) };
        let Some(place) = self.place_for(request, owner, false) else { return Ok(None) };
        self.take_at(place, request, owner).map(Some)
    }

    /// Where the same request went before, else the best fit; `None` also where others may be done with the former, unless that was
    /// asked.
    fn place_for(&self, request: &Request, owner: Owner, has_asked: bool) -> Option<Place> {
        let compact = self.compact();
        if request.pool == PoolKind::Large
            && let Some(position) = compact.owners[owner].journal.predicted(request.size)
        {
            // Mostly all of it is in one free block.
            let free = compact.free_at(&self.blocks, position);
            if let Some((free, block)) = free.map(|free| (free, &self.blocks[free]))
                && block.owner == owner
                && position + request.size <= block.position + block.size
            {
                return Some(Place::In(free, position - block.position));
            }
            match self.can_use(position, request.size, owner) {
                Some(true) => return Some(Place::At(position)),
                // Worth to ask, which only a miss does.
                Some(false) if !has_asked => return None,
                _ => {}
            }
        }
        compact.owners[owner].free[request.pool as usize]
            .best_fit(&self.blocks, request.size)
            .map(|free| Place::In(free, 0))
    }

    /// Gives out these bytes.
    pub(super) fn take_at(
        &mut self,
        place: Place,
        request: &Request,
        owner: Owner,
    ) -> Result<Taken<P>, NoRoom> {
        let Request { requested, size, pool } = *request;
        let counted = Counted { pool, bytes: size, requested, oversize: false, split: Pair::default() };
        self.account.given_out(counted)?;
        let block = match place {
            Place::In(free, offset) => self.claim_part(free, offset, size, owner),
            Place::At(position) => self.claim(position, size, owner),
        };
        self.blocks[block].requested = requested;
        let position = self.blocks[block].position;
        let ptr = self.blocks.ptr(&self.blocks[block]);
        let compact = self.compact_mut();
        compact.requested += requested;
        compact.peak_requested = compact.peak_requested.max(compact.requested);
        if pool == PoolKind::Large {
            compact.owners[owner].journal.note(size, position);
        }
        Ok(Taken { arena: self.stream, block, ptr, size })
    }

    /// Bytes that can be used become a block.
    fn claim(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        match self.compact().strip_of(position) {
            Some(strip) => self.claim_of_strip(strip, position, size, owner),
            None => self.claim_at_home(position, size, owner),
        }
    }

    /// Whether the bytes can be used; `None`: they are not even free. False: that they are over is not known yet.
    fn can_use(&self, position: u64, size: u64, owner: Owner) -> Option<bool> {
        match self.compact().strip_of(position) {
            Some(strip) => self.can_use_of_strip(strip, position, size, owner),
            None => self.can_use_at_home(position, size, owner),
        }
    }

    /// Makes the block free, and one with what is free beside it.
    pub(super) fn make_free_compact(
        &mut self,
        id: BlockId,
        count: impl FnOnce(&mut Account, Counted) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let Block { pool, size, requested, owner, position, .. } = self.blocks[id];
        let counted = Counted { pool, bytes: size, requested, oversize: false, split: Pair::default() };
        count(&mut self.account, counted)?;
        let reserved = self.compact().reserved;
        let compact = self.compact_mut();
        compact.requested -= requested;
        compact.owners.freed(owner, size, reserved);
        match compact.strip_of(position) {
            Some(strip) => self.leave_strip(strip, id),
            None => self.put_free(id, owner),
        }
        Ok(())
    }

    /// A block that is on no list becomes free, as bytes that this owner has just done with.
    fn put_free(&mut self, id: BlockId, owner: Owner) {
        let epoch = self.compact_mut().owners.open_epoch(owner);
        self.put_free_since(id, owner, epoch);
    }

    /// As [`put_free`](Self::put_free), for bytes that nobody has had yet.
    fn put_fresh(&mut self, id: BlockId, owner: Owner) {
        self.put_free_since(id, owner, Owners::ALWAYS_OVER);
    }

    fn put_free_since(&mut self, id: BlockId, owner: Owner, epoch: u32) {
        let Block { previous, next, pool, .. } = self.blocks[id];
        let own = |id: &BlockId| (self.blocks[*id].state, self.blocks[*id].owner) == (State::Free, owner);
        let (before, behind) = (previous.filter(own), next.filter(own));
        let since = |id: Option<BlockId>| id.map_or(0, |id| self.blocks[id].free_since);
        let free_since = epoch.max(since(before)).max(since(behind));
        let list = &self.compact().owners[owner].free[pool as usize];
        if let (None, Some(rest)) = (before, behind)
            && list.is_outside(rest)
        {
            return self.put_back(id, rest, free_since);
        }
        let block = &mut self.blocks[id];
        (block.state, block.owner, block.free_since) = (State::Free, owner, free_since);
        self.merge(id);
        self.list(id);
    }

    /// Puts back what was cut off the start of the block outside the bins: no list changes.
    fn put_back(&mut self, id: BlockId, rest: BlockId, free_since: u32) {
        let Block { segment, position, size, previous, .. } = self.blocks[id];
        let block = &mut self.blocks[rest];
        block.position = position;
        block.size += size;
        block.previous = previous;
        block.free_since = free_since;
        self.blocks.link(previous, segment, rest);
        self.blocks.blocks.remove(id);
    }

    pub(super) fn compact(&self) -> &Compact {
        let Some(compact) = &self.compact else { unreachable!("only the shared arena is asked") };
        compact
    }

    pub(super) fn compact_mut(&mut self) -> &mut Compact {
        let Some(compact) = &mut self.compact else { unreachable!("only the shared arena is asked") };
        compact
    }

    /// The number of a stream that has asked for memory here.
    fn owner_number(&self, stream: StreamId) -> Owner {
        let Some(owner) = self.compact().owners.number(stream) else { unreachable!("the stream has asked") };
        owner
    }

    /// The stream that a segment serves.
    pub(super) fn stream_of_segment(&self, segment: SegmentId) -> StreamId {
        let home = self.compact.iter().find_map(|compact| {
            compact
                .homes
                .iter()
                .find(|home| home.segment == segment)
                .map(|home| compact.owners[home.owner].stream)
        });
        home.unwrap_or(self.stream)
    }

    /// The strips that have blocks: each with the stream of its first block, its bytes, and its blocks with where they start.
    pub(super) fn strips(
        &self,
    ) -> impl Iterator<Item = (&Segment<P>, StreamId, u64, impl Iterator<Item = (P, &Block)>)> {
        let strips = self.compact.iter().flat_map(|compact| compact.strips.values());
        strips.filter(|strip| !strip.blocks.is_empty()).map(|strip| {
            let blocks =
                strip.blocks.iter().map(|id| (self.blocks.ptr(&self.blocks[*id]), &self.blocks[*id]));
            let stream = strip.blocks.first().map_or(self.stream, |id| self.stream_of(*id));
            (&self.blocks.segments[strip.segment], stream, strip.len(), blocks)
        })
    }

    /// The stream that a block was allocated on.
    pub(super) fn stream_of(&self, id: BlockId) -> StreamId {
        match &self.compact {
            Some(compact) => compact.owners[self.blocks[id].owner].stream,
            None => self.stream,
        }
    }
}
