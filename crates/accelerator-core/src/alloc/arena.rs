//! The segments, blocks and free lists of one stream: pure bookkeeping, without a driver or a pointer's value.

use std::num::NonZeroU64;

use super::account::{Account, Counted, NoRoom};
use super::block::{Block, BlockId, Blocks, Id, Segment, SegmentId, Slab, State, Use, UseId};
use super::compact::Compact;
use super::config::{AllocatorConfig, Policy, RoundupDivisions};
use super::expandable::PageRange;
use super::free_list::FreeList;
use super::history::{CaptureContext, Recording};
use super::pair::Pair;
use super::policy::{Fit, Request};
use super::uses::Users;
use crate::backend::DevicePtr;
use crate::types::{PoolKind, StreamId};
use std::collections::BTreeMap;

/// What one stream holds. Free blocks never move between streams, so each has its own, behind its own lock.
#[derive(Debug)]
pub(super) struct Arena<P> {
    /// Whose blocks these are.
    pub(super) stream: StreamId,
    /// A copy of the device's settings, so that the warm path reads them under the lock that it holds anyway.
    pub(super) config: AllocatorConfig,
    /// Whether something is to be done beside the books: something is recorded, searches are counted, or what is freed goes
    /// back.
    pub(super) attended: bool,
    /// Whether that is not so, and no segment is or will be expandable. One look tells the warm path.
    pub(super) plain: bool,
    /// Whether requests are rounded up to more than whole blocks.
    divides: bool,
    /// What gives the contexts of allocations.
    pub(super) capture: Option<CaptureContext>,
    /// What gives those of frees.
    pub(super) capture_of_frees: Option<CaptureContext>,
    pub(super) account: Account,
    pub(super) blocks: Blocks<P>,
    pub(super) uses: Slab<UseId, Use>,
    /// The free blocks of each pool.
    pub(super) free: [FreeList; 2],
    /// The unmapped blocks of each pool, by position.
    pub(super) unmapped: [BTreeMap<u64, BlockId>; 2],
    /// How many segments are expandable.
    pub(super) expandable: usize,
    /// Of the arena of the policy `compact`, what that knows.
    pub(super) compact: Option<Box<Compact>>,
}

/// A block that was given out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<P> {
    /// The stream whose arena it is in.
    pub(super) arena: StreamId,
    pub(super) block: BlockId,
    pub(super) ptr: P,
    pub(super) size: u64,
}

impl<P: DevicePtr> Arena<P> {
    pub(super) fn new(stream: StreamId, config: AllocatorConfig, recording: Option<&Recording>) -> Self {
        let mut arena = Self {
            stream,
            config,
            attended: false,
            plain: true,
            divides: false,
            capture: None,
            capture_of_frees: None,
            account: Account::default(),
            blocks: Blocks::new(),
            uses: Slab::new(),
            free: Default::default(),
            unmapped: Default::default(),
            expandable: 0,
            compact: (stream == StreamId::SHARED).then(Box::default),
        };
        arena.configure(config, recording);
        arena
    }

    /// Sets the device's settings, and what is recorded of it.
    pub(super) fn configure(&mut self, config: AllocatorConfig, recording: Option<&Recording>) {
        self.config = config;
        self.attended = !config.caching || config.garbage_collection_threshold != 0.0 || recording.is_some();
        self.see_whether_plain();
        self.divides = config.roundup_power2_divisions != RoundupDivisions::default();
        self.capture = recording.and_then(|recording| recording.capture);
        self.capture_of_frees = recording.and_then(Recording::capture_of_frees);
    }

    /// To be called where anything of that has changed.
    pub(super) fn see_whether_plain(&mut self) {
        let is_compact = self.config.policy == Policy::Compact || self.compact.is_some();
        self.plain =
            !self.attended && !self.config.expandable_segments && self.expandable == 0 && !is_compact;
    }

    /// What becomes of a request for so many bytes, which are fewer than [`TOO_LARGE`](super::policy::TOO_LARGE).
    #[inline(always)]
    pub(super) fn request(&self, requested: NonZeroU64) -> Request {
        match self.divides {
            true => self.config.request(requested.get()),
            false => Request::in_blocks(requested.get()),
        }
    }

    /// Gives out the best fitting free block, if there is one. PyTorch: `get_free_block`, `alloc_found_block`.
    ///
    /// `EXPANDABLE`, here and below: whether there may be expandable segments. To look costs the warm path registers.
    #[inline(always)]
    pub(super) fn take<const EXPANDABLE: bool>(
        &mut self,
        request: &Request,
        clock: u32,
    ) -> Result<Option<Taken<P>>, NoRoom> {
        let free = &self.free[request.pool as usize];
        let Some(id) = free.best_fit(&self.blocks, request.size) else { return Ok(None) };
        if EXPANDABLE && self.blocks[id].expandable {
            return self.take_beside(id, request, clock);
        }
        let Some(fit) = self.config.fit(request, self.blocks[id].size) else { return Ok(None) };
        self.take_block::<EXPANDABLE>(id, request, fit, clock).map(Some)
    }

    /// Gives out a free block by the policy of the arena.
    pub(super) fn take_by_policy(
        &mut self,
        request: &Request,
        stream: StreamId,
        clock: u32,
    ) -> Result<Option<Taken<P>>, NoRoom> {
        match self.compact {
            None => self.take::<true>(request, clock),
            Some(_) => self.take_compact(request, stream),
        }
    }

    /// Gives out a free block, or the start of it.
    #[inline(always)]
    pub(super) fn take_block<const EXPANDABLE: bool>(
        &mut self,
        id: BlockId,
        request: &Request,
        fit: Fit,
        clock: u32,
    ) -> Result<Taken<P>, NoRoom> {
        self.count_taken::<EXPANDABLE>(id, request, fit)?;
        let free = &mut self.free[request.pool as usize];
        if fit.splits {
            free.put_outside(&mut self.blocks, id);
            return Ok(self.cut_off::<EXPANDABLE>(id, request, clock));
        }
        free.remove(&mut self.blocks, id);
        Ok(self.give_out(id, request))
    }

    /// Takes in a new segment, the `created`th of the device, and gives out its start.
    pub(super) fn add_segment(
        &mut self,
        ptr: P,
        size: u64,
        request: &Request,
        clock: u32,
        created: u64,
    ) -> Result<Taken<P>, NoRoom> {
        let id = self.blocks.add_segment(ptr, size, created, request.pool, None);
        self.blocks[id].free_since = clock;
        self.free[request.pool as usize].insert(&mut self.blocks, id);
        self.take_block::<true>(id, request, self.config.fit_of_block(request, size), clock)
    }

    /// Counts that a free block is given out.
    #[inline(always)]
    fn count_taken<const EXPANDABLE: bool>(
        &mut self,
        id: BlockId,
        request: &Request,
        fit: Fit,
    ) -> Result<(), NoRoom> {
        let block = &self.blocks[id];
        let (whole, was_split) = (block.size, block.is_split());
        let bytes = if fit.splits { request.size } else { whole };
        let split = match (fit.splits, was_split) {
            _ if EXPANDABLE && block.expandable => Pair::default(),
            (true, true) => Pair::new(0, -(bytes as i64)),
            (true, false) => Pair::new(1, (whole - bytes) as i64),
            (false, true) => Pair::new(-1, -(bytes as i64)),
            (false, false) => Pair::default(),
        };
        let Request { pool, requested, .. } = *request;
        self.account.given_out(Counted { pool, bytes, requested, oversize: fit.oversize, split })
    }

    /// Marks a block allocated that is on no free list.
    #[inline(always)]
    fn give_out(&mut self, id: BlockId, request: &Request) -> Taken<P> {
        let block = &mut self.blocks[id];
        block.state = State::Allocated;
        block.requested = request.requested;
        let size = block.size;
        Taken { arena: self.stream, block: id, ptr: self.blocks.ptr(&self.blocks[id]), size }
    }

    /// Makes a new block, allocated, of the start of the free block outside the bins, which goes on as the rest of it.
    #[inline(always)]
    fn cut_off<const EXPANDABLE: bool>(&mut self, rest: BlockId, request: &Request, clock: u32) -> Taken<P> {
        let Request { requested, size, .. } = *request;
        let Block { position, segment, pool, expandable, previous, .. } = self.blocks[rest];
        let id = self.blocks.blocks.insert(Block {
            position,
            size,
            requested,
            segment,
            pool,
            expandable: EXPANDABLE && expandable,
            state: State::Allocated,
            previous,
            next: Some(rest),
            below: [None; 2],
            uses: None,
            free_since: clock,
            owner: 0,
        });
        let block = &mut self.blocks[rest];
        block.position = position.wrapping_add(size);
        block.size -= size;
        block.previous = Some(id);
        block.free_since = clock;
        self.blocks.link(previous, segment, id);
        Taken { arena: self.stream, block: id, ptr: self.blocks.ptr(&self.blocks[id]), size }
    }

    /// The user is done with the block, and no other stream used it. Whether that is so, and there is room: else nothing changes.
    #[inline(always)]
    pub(super) fn free_unused<const EXPANDABLE: bool>(&mut self, id: BlockId, clock: u32) -> bool {
        self.blocks[id].uses.is_none() && self.make_free::<EXPANDABLE>(id, clock, Account::freed).is_ok()
    }

    /// The user is done with the block. The streams that it waits for, unless it is free at once. PyTorch: `free`.
    pub(super) fn free(&mut self, id: BlockId, clock: u32) -> Result<Option<Users>, NoRoom> {
        match self.free_when_done(id) {
            None => self.make_free::<true>(id, clock, Account::freed).map(|()| None),
            users => Ok(users),
        }
    }

    /// Makes the block free, one with its free neighbours. PyTorch: `free_block`.
    #[inline(always)]
    pub(super) fn make_free<const EXPANDABLE: bool>(
        &mut self,
        id: BlockId,
        clock: u32,
        count: impl FnOnce(&mut Account, Counted) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        if EXPANDABLE && self.compact.is_some() {
            return self.make_free_compact(id, count);
        }
        let Block { pool, expandable, size, requested, mut previous, mut next, .. } = self.blocks[id];
        let (mut before, mut bytes_before, mut behind, mut bytes_behind) = (None, 0, None, 0);
        if let Some(block) = self.free_block(previous) {
            (before, bytes_before, previous) = (previous, block.size, block.previous);
        }
        if let Some(block) = self.free_block(next) {
            (behind, bytes_behind, next) = (next, block.size, block.next);
        }
        let merged = i64::from(before.is_some()) + i64::from(behind.is_some());
        let merged_bytes = bytes_before + bytes_behind;
        let split = match previous.is_some() || next.is_some() {
            // Their free pages can always go back.
            _ if EXPANDABLE && expandable => Pair::default(),
            true => Pair::new(1 - merged, size as i64),
            false => Pair::new(-merged, -(merged_bytes as i64)),
        };
        let oversize = self.config.is_oversize(size);
        count(&mut self.account, Counted { pool, bytes: size, requested, oversize, split })?;

        let free = &mut self.free[pool as usize];
        if let (Some(rest), None) = (behind, before)
            && free.is_outside(rest)
        {
            // What was cut off goes back.
            let Block { position, segment, .. } = self.blocks[id];
            let block = &mut self.blocks[rest];
            block.position = position;
            block.size += size;
            block.requested = requested;
            block.previous = previous;
            block.free_since = clock;
            self.blocks.link(previous, segment, rest);
            self.blocks.blocks.remove(id);
            return Ok(());
        }
        let block = &mut self.blocks[id];
        block.position = block.position.wrapping_sub(bytes_before);
        block.size += merged_bytes;
        (block.previous, block.next) = (previous, next);
        block.state = State::Free;
        block.free_since = clock;
        let segment = block.segment;
        if let Some(merged) = behind {
            free.remove(&mut self.blocks, merged);
            self.blocks.blocks.remove(merged);
            if let Some(next) = next {
                self.blocks[next].previous = Some(id);
            }
        }
        if let Some(merged) = before {
            free.remove(&mut self.blocks, merged);
            self.blocks.blocks.remove(merged);
            self.blocks.link(previous, segment, id);
        }
        free.insert(&mut self.blocks, id);
        Ok(())
    }

    /// The block, if there is one and it is free.
    #[inline(always)]
    pub(super) fn free_block(&self, id: Option<BlockId>) -> Option<&Block> {
        id.map(|id| &self.blocks[id]).filter(|block| block.state == State::Free)
    }

    /// The segments, each with its blocks and where they start.
    pub(super) fn segments(
        &self,
    ) -> impl Iterator<Item = (SegmentId, &Segment<P>, impl Iterator<Item = (P, &Block)>)> {
        let segments =
            (0..).zip(self.blocks.segments.iter()).map(|(number, segment)| (SegmentId::at(number), segment));
        segments.filter(|(_, segment)| segment.first.is_some()).map(|(id, segment)| {
            let first = segment.first.map(|first| &self.blocks[first]);
            let blocks = std::iter::successors(first, |block| block.next.map(|next| &self.blocks[next]));
            (id, segment, blocks.map(|block| (self.blocks.ptr(block), block)))
        })
    }

    /// Whether the block, were it free, would serve the request.
    pub(super) fn could_serve(&self, id: BlockId, request: &Request) -> bool {
        let Block { size, pool, expandable, .. } = self.blocks[id];
        let fits =
            || (self.config.expandable_segments || !expandable) && self.config.fit(request, size).is_some();
        pool == request.pool && size >= request.size && (self.compact.is_some() || fits())
    }

    /// Where pages start.
    pub(super) fn address_of(&self, pages: PageRange) -> P {
        self.blocks.segments[pages.segment].ptr.offset(pages.offset)
    }

    /// Where a block starts, and how many bytes of it were asked for.
    pub(super) fn place_of(&self, id: BlockId) -> (P, u64) {
        let block = &self.blocks[id];
        (self.blocks.ptr(block), block.requested)
    }

    pub(super) fn size_of(&self, id: BlockId) -> u64 {
        self.blocks[id].size
    }

    pub(super) fn pool_of(&self, id: BlockId) -> PoolKind {
        self.blocks[id].pool
    }
}
