//! The segments, blocks and free lists of one stream: pure bookkeeping, without a driver or a pointer's value.

use std::num::NonZeroU64;

use super::account::{Account, Counted, NoRoom};
use super::block::{Block, BlockId, Blocks, Segment, Slab, State, Use, UseId};
use super::config::{AllocatorConfig, RoundupDivisions};
use super::free_list::FreeList;
use super::history::{CaptureContext, Recording};
use super::pair::Pair;
use super::policy::{Fit, Request};
use crate::backend::DevicePtr;
use crate::types::{PoolKind, StreamId};

/// What one stream holds. Free blocks never move between streams, so each has its own, behind its own lock.
#[derive(Debug)]
pub(super) struct Arena<P> {
    /// Whose blocks these are.
    pub(super) stream: StreamId,
    /// A copy of the device's settings, so that the warm path reads them under the lock that it holds anyway.
    pub(super) config: AllocatorConfig,
    /// Whether nothing is to be done beside the books: nothing is recorded, searches are not counted, and what is freed is
    /// kept. One look tells the warm path.
    pub(super) plain: bool,
    /// Whether requests are rounded up to more than whole blocks.
    divides: bool,
    /// What gives the contexts of allocations.
    pub(super) capture: Option<CaptureContext>,
    /// What gives those of frees.
    pub(super) capture_of_frees: Option<CaptureContext>,
    pub(super) account: Account,
    pub(super) blocks: Blocks<P>,
    uses: Slab<UseId, Use>,
    /// The free blocks of each pool.
    pub(super) free: [FreeList; 2],
}

/// A block that was given out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<P> {
    pub(super) block: BlockId,
    pub(super) ptr: P,
    pub(super) size: u64,
}

/// Streams that used a block. Mostly there is one, so one needs no memory.
pub(super) struct Users {
    first: StreamId,
    others: Vec<StreamId>,
}

impl Users {
    #[inline]
    pub(super) fn for_each(&self, mut each: impl FnMut(StreamId)) {
        each(self.first);
        self.others.iter().copied().for_each(each);
    }
}

impl<P: DevicePtr> Arena<P> {
    pub(super) fn new(stream: StreamId, config: AllocatorConfig, recording: Option<&Recording>) -> Self {
        let mut arena = Self {
            stream,
            config,
            plain: true,
            divides: false,
            capture: None,
            capture_of_frees: None,
            account: Account::default(),
            blocks: Blocks::new(),
            uses: Slab::new(),
            free: Default::default(),
        };
        arena.configure(config, recording);
        arena
    }

    /// Sets the device's settings, and what is recorded of it.
    pub(super) fn configure(&mut self, config: AllocatorConfig, recording: Option<&Recording>) {
        self.config = config;
        self.plain = config.caching && config.garbage_collection_threshold == 0.0 && recording.is_none();
        self.divides = config.roundup_power2_divisions != RoundupDivisions::default();
        self.capture = recording.and_then(|recording| recording.capture);
        self.capture_of_frees = recording.and_then(Recording::capture_of_frees);
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
    #[inline(always)]
    pub(super) fn take(&mut self, request: &Request, clock: u32) -> Result<Option<Taken<P>>, NoRoom> {
        let free = &self.free[request.pool as usize];
        let Some(id) = free.best_fit(&self.blocks, request.size) else { return Ok(None) };
        let Some(fit) = self.config.fit(request, self.blocks[id].size) else { return Ok(None) };
        self.count_taken(id, request, fit)?;
        let free = &mut self.free[request.pool as usize];
        if fit.splits {
            free.put_outside(&mut self.blocks, id);
            return Ok(Some(self.cut_off(id, request, clock)));
        }
        free.remove(&mut self.blocks, id);
        Ok(Some(self.give_out(id, request)))
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
        let pool = request.pool;
        let position = self.blocks.next_position;
        self.blocks.next_position = position.wrapping_add(size);
        let segment = Segment { ptr, size, created, position, pool, first: None };
        let segment = self.blocks.segments.insert(segment);
        let id = self.blocks.blocks.insert(Block {
            position,
            size,
            requested: 0,
            segment,
            pool,
            state: State::Free,
            previous: None,
            next: None,
            below: [None; 2],
            uses: None,
            free_since: clock,
        });
        self.blocks.segments[segment].first = Some(id);
        let fit = self.config.fit_of_block(request, size);
        self.count_taken(id, request, fit)?;
        if fit.splits {
            self.free[pool as usize].insert(&mut self.blocks, id);
            return Ok(self.cut_off(id, request, clock));
        }
        Ok(self.give_out(id, request))
    }

    /// Counts that a free block is given out.
    #[inline(always)]
    fn count_taken(&mut self, id: BlockId, request: &Request, fit: Fit) -> Result<(), NoRoom> {
        let block = &self.blocks[id];
        let (whole, was_split) = (block.size, block.is_split());
        let bytes = if fit.splits { request.size } else { whole };
        let split = match (fit.splits, was_split) {
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
        Taken { block: id, ptr: self.blocks.ptr(&self.blocks[id]), size }
    }

    /// Makes a new block, allocated, of the start of the free block outside the bins, which goes on as the rest of it.
    #[inline(always)]
    fn cut_off(&mut self, rest: BlockId, request: &Request, clock: u32) -> Taken<P> {
        let Request { requested, size, .. } = *request;
        let Block { position, segment, pool, previous, .. } = self.blocks[rest];
        let id = self.blocks.blocks.insert(Block {
            position,
            size,
            requested,
            segment,
            pool,
            state: State::Allocated,
            previous,
            next: Some(rest),
            below: [None; 2],
            uses: None,
            free_since: clock,
        });
        let block = &mut self.blocks[rest];
        block.position = position.wrapping_add(size);
        block.size -= size;
        block.previous = Some(id);
        block.free_since = clock;
        self.blocks.link(previous, segment, id);
        Taken { block: id, ptr: self.blocks.ptr(&self.blocks[id]), size }
    }

    /// Notes that a stream beside the block's own uses it.
    pub(super) fn record_use(&mut self, id: BlockId, stream: StreamId) {
        let mut last = None;
        let mut next = self.blocks[id].uses;
        while let Some(one) = next {
            if self.uses[one].stream == stream {
                return;
            }
            (last, next) = (next, self.uses[one].next);
        }
        let noted = Some(self.uses.insert(Use { stream, next: None }));
        match last {
            Some(last) => self.uses[last].next = noted,
            None => self.blocks[id].uses = noted,
        }
    }

    /// The user is done with the block, and no other stream used it. Whether that is so, and there is room: else nothing changes.
    #[inline(always)]
    pub(super) fn free_unused(&mut self, id: BlockId, clock: u32) -> bool {
        self.blocks[id].uses.is_none() && self.make_free(id, clock, Account::freed).is_ok()
    }

    /// The user is done with the block. The streams that it waits for, unless it is free at once. PyTorch: `free`.
    pub(super) fn free(&mut self, id: BlockId, clock: u32) -> Result<Option<Users>, NoRoom> {
        match self.free_when_done(id) {
            None => self.make_free(id, clock, Account::freed).map(|()| None),
            users => Ok(users),
        }
    }

    /// The user is done with the block, which stays active until the streams are done that used it: these. If there are none,
    /// nothing changes.
    pub(super) fn free_when_done(&mut self, id: BlockId) -> Option<Users> {
        let Block { size, pool, ref mut uses, .. } = self.blocks[id];
        let first = uses.take()?;
        let Use { stream, mut next } = self.uses[first];
        let mut users = Users { first: stream, others: Vec::new() };
        self.uses.remove(first);
        while let Some(one) = next {
            users.others.push(self.uses[one].stream);
            self.uses.remove(one);
            next = self.uses[one].next;
        }
        self.blocks[id].state = State::Pending(1 + users.others.len() as u32);
        self.account.pending_begun(pool, size, self.config.is_oversize(size));
        Some(users)
    }

    /// One of the streams that a freed block waits for is done with it. Whether that was the last.
    pub(super) fn use_completed(&mut self, id: BlockId, clock: u32) -> Result<bool, NoRoom> {
        match &mut self.blocks[id].state {
            State::Pending(uses @ 2..) => {
                *uses -= 1;
                Ok(false)
            }
            State::Pending(_) => self.make_free(id, clock, Account::pending_over).map(|()| true),
            State::Free | State::Allocated => unreachable!("only freed blocks wait for streams"),
        }
    }

    /// Makes the block free, one with its free neighbours. PyTorch: `free_block`.
    #[inline(always)]
    fn make_free(
        &mut self,
        id: BlockId,
        clock: u32,
        count: impl FnOnce(&mut Account, Counted) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let Block { pool, size, requested, mut previous, mut next, .. } = self.blocks[id];
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
    fn free_block(&self, id: Option<BlockId>) -> Option<&Block> {
        id.map(|id| &self.blocks[id]).filter(|block| block.state == State::Free)
    }

    /// The segments, each with its blocks and where they start.
    pub(super) fn segments(&self) -> impl Iterator<Item = (&Segment<P>, impl Iterator<Item = (P, &Block)>)> {
        self.blocks.segments.iter().filter(|segment| segment.first.is_some()).map(|segment| {
            let first = segment.first.map(|first| &self.blocks[first]);
            let blocks = std::iter::successors(first, |block| block.next.map(|next| &self.blocks[next]));
            (segment, blocks.map(|block| (self.blocks.ptr(block), block)))
        })
    }

    /// Whether the block, were it free, would serve the request.
    pub(super) fn could_serve(&self, id: BlockId, request: &Request) -> bool {
        let size = self.blocks[id].size;
        self.blocks[id].pool == request.pool
            && size >= request.size
            && self.config.fit(request, size).is_some()
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
