//! The segments, blocks and free lists of one stream: pure bookkeeping, without a driver or a pointer's value.

use super::block::{Block, BlockId, Segment, SegmentId, Slab, State};
use super::config::AllocatorConfig;
use super::free_list::{FreeBlock, FreeList};
use super::history::{CaptureContext, Recording};
use super::ledger::Books;
use super::policy::Request;
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
    /// What gives the contexts of allocations.
    pub(super) capture: Option<CaptureContext>,
    /// What gives those of frees.
    pub(super) capture_of_frees: Option<CaptureContext>,
    blocks: Slab<BlockId, Block>,
    segments: Slab<SegmentId, Segment<P>>,
    small: FreeList,
    large: FreeList,
}

/// A block that was given out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<P> {
    pub(super) block: BlockId,
    pub(super) ptr: P,
    pub(super) size: u64,
}

/// A segment taken out of the books, to be given back to the driver: once, so it cannot be copied.
#[derive(Debug)]
pub(super) struct Detached<P> {
    pub(super) ptr: P,
    pub(super) size: u64,
    pub(super) pool: PoolKind,
}

/// What a free leads to.
pub(super) enum Freed {
    /// The block is free.
    Now,
    /// The block waits for these streams.
    WhenDone(Vec<StreamId>),
}

impl<P: DevicePtr> Arena<P> {
    pub(super) fn new(stream: StreamId, config: AllocatorConfig, recording: Option<&Recording>) -> Self {
        let (blocks, segments) = (Slab::new(), Slab::new());
        let (small, large) = (FreeList::default(), FreeList::default());
        let (capture, capture_of_frees) = (None, None);
        let mut arena =
            Self { stream, config, plain: true, capture, capture_of_frees, blocks, segments, small, large };
        arena.configure(config, recording);
        arena
    }

    /// Sets the device's settings, and what is recorded of it.
    pub(super) fn configure(&mut self, config: AllocatorConfig, recording: Option<&Recording>) {
        self.config = config;
        self.plain = config.caching && config.garbage_collection_threshold == 0.0 && recording.is_none();
        self.capture = recording.and_then(|recording| recording.capture);
        self.capture_of_frees = recording.and_then(Recording::capture_of_frees);
    }

    /// Gives out the best fitting free block, if there is one. PyTorch: `get_free_block`, `alloc_found_block`.
    pub(super) fn take(&mut self, request: &Request, clock: u64, books: &mut Books) -> Option<Taken<P>> {
        let free = self.free_list(request.pool).best_fit(request.size)?;
        if !self.config.may_take(request, free.size) {
            return None;
        }
        self.free_list(request.pool).remove(&free);
        Some(self.give_out(free.block, request, clock, books))
    }

    /// Takes in a new segment and gives out its start.
    pub(super) fn add_segment(
        &mut self,
        ptr: P,
        request: &Request,
        clock: u64,
        books: &mut Books,
    ) -> Taken<P> {
        let created = books.segment_made(&self.config, request.pool, request.segment);
        let segment = self.segments.insert(Segment {
            ptr,
            size: request.segment,
            created,
            pool: request.pool,
            first: BlockId::FIRST,
        });
        let block = self.blocks.insert(Block {
            segment,
            state: State::Free,
            offset: 0,
            size: request.segment,
            requested: 0,
            previous: None,
            next: None,
            free_since: clock,
            uses: Vec::new(),
        });
        self.segments[segment].first = block;
        self.give_out(block, request, clock, books)
    }

    /// Cuts the request off the start of a block that is on no free list, and marks it allocated.
    fn give_out(&mut self, id: BlockId, request: &Request, clock: u64, books: &mut Books) -> Taken<P> {
        let was_split = self.blocks[id].is_split();
        let whole = self.blocks[id].size;
        if self.config.splits(request, whole) {
            self.split_off_rest(id, request.size, clock);
            match was_split {
                true => books.inactive_split_changed(request.pool, 0, -(request.size as i64)),
                false => books.inactive_split_changed(request.pool, 1, (whole - request.size) as i64),
            }
        } else if was_split {
            books.inactive_split_changed(request.pool, -1, -(whole as i64));
        }
        let block = &mut self.blocks[id];
        block.state = State::Allocated;
        block.requested = request.requested;
        let (offset, size) = (block.offset, block.size);
        let ptr = self.segments[block.segment].ptr.offset(offset);
        books.allocated(&self.config, request, size);
        Taken { block: id, ptr, size }
    }

    /// Leaves `size` bytes in the block and makes the rest a free block behind it.
    fn split_off_rest(&mut self, id: BlockId, size: u64, clock: u64) {
        let block = &mut self.blocks[id];
        let rest = Block {
            segment: block.segment,
            state: State::Free,
            offset: block.offset + size,
            size: block.size - size,
            requested: block.requested,
            previous: Some(id),
            next: block.next,
            free_since: clock,
            uses: Vec::new(),
        };
        block.size = size;
        let next = block.next;
        let rest_id = self.blocks.insert(rest);
        self.blocks[id].next = Some(rest_id);
        if let Some(next) = next {
            self.blocks[next].previous = Some(rest_id);
        }
        self.list(rest_id);
    }

    /// Notes that a stream beside the block's own uses it.
    pub(super) fn record_use(&mut self, id: BlockId, stream: StreamId) {
        let uses = &mut self.blocks[id].uses;
        if !uses.contains(&stream) {
            uses.push(stream);
        }
    }

    /// The user is done with the block. PyTorch: `free`.
    pub(super) fn free(&mut self, id: BlockId, clock: u64, books: &mut Books) -> Freed {
        let block = &mut self.blocks[id];
        let size = block.size;
        let uses = std::mem::take(&mut block.uses);
        block.state = State::Pending(uses.len() as u32);
        books.free_requested(&self.config, self.pool_of(id), size);
        if uses.is_empty() {
            self.free_completed(id, clock, books);
            return Freed::Now;
        }
        Freed::WhenDone(uses)
    }

    /// One of the streams that a freed block waits for is done with it. Whether that was the last.
    pub(super) fn use_completed(&mut self, id: BlockId, clock: u64, books: &mut Books) -> bool {
        let block = &mut self.blocks[id];
        let left = match block.state {
            State::Pending(uses) => uses.saturating_sub(1),
            State::Free | State::Allocated => unreachable!("only freed blocks wait for streams"),
        };
        block.state = State::Pending(left);
        if left == 0 {
            self.free_completed(id, clock, books);
        }
        left == 0
    }

    /// Makes the block free, one with its free neighbours. PyTorch: `free_block`.
    fn free_completed(&mut self, id: BlockId, clock: u64, books: &mut Books) {
        let pool = self.pool_of(id);
        let Block { size, requested, previous, next, .. } = self.blocks[id];
        let (mut split_blocks, mut split_bytes) = (0, 0);
        for neighbour in [previous, next].into_iter().flatten() {
            if self.blocks[neighbour].state == State::Free {
                split_blocks -= 1;
                split_bytes -= self.blocks[neighbour].size as i64;
                self.merge(id, neighbour);
            }
        }
        let block = &mut self.blocks[id];
        block.state = State::Free;
        block.free_since = clock;
        if block.is_split() {
            split_blocks += 1;
            split_bytes += block.size as i64;
        }
        self.list(id);
        books.inactive_split_changed(pool, split_blocks, split_bytes);
        books.deactivated(pool, size, requested);
    }

    /// Makes a free neighbour part of the block, which is on no list. PyTorch: `try_merge_blocks`.
    fn merge(&mut self, id: BlockId, neighbour: BlockId) {
        self.unlist(neighbour);
        let Some(gone) = self.blocks.remove(neighbour) else { return };
        let block = &mut self.blocks[id];
        block.size += gone.size;
        if gone.offset < block.offset {
            block.offset = gone.offset;
            block.previous = gone.previous;
            match gone.previous {
                Some(previous) => self.blocks[previous].next = Some(id),
                None => self.segments[gone.segment].first = id,
            }
        } else {
            block.next = gone.next;
            if let Some(next) = gone.next {
                self.blocks[next].previous = Some(id);
            }
        }
    }

    /// Takes every whole free segment of a pool out of the books.
    pub(super) fn detach_all(&mut self, pool: PoolKind) -> Vec<Detached<P>> {
        let whole: Vec<_> = self.whole_free().filter(|whole| whole.pool == pool).collect();
        whole.into_iter().filter_map(|segment| self.detach(segment)).collect()
    }

    /// Takes one segment out of the books, if it is whole and free still.
    pub(super) fn detach(&mut self, whole: WholeFree) -> Option<Detached<P>> {
        let segment = self.segments.get(whole.segment).filter(|segment| segment.created == whole.created)?;
        let (id, ptr, size, pool) = (segment.first, segment.ptr, segment.size, segment.pool);
        let block = &self.blocks[id];
        if block.state != State::Free || block.is_split() {
            return None;
        }
        self.unlist(id);
        self.blocks.remove(id);
        self.segments.remove(whole.segment);
        Some(Detached { ptr, size, pool })
    }

    /// The segments that are one free block.
    pub(super) fn whole_free(&self) -> impl Iterator<Item = WholeFree> {
        [&self.small, &self.large].into_iter().flat_map(FreeList::iter).filter_map(|free| self.as_whole(free))
    }

    /// Whole free segments that give `wanted` bytes, at least the oversize limit, together: one that is large enough,
    /// else the largest oversize ones, as far as they go. PyTorch: the choice of `release_available_cached_blocks`.
    pub(super) fn oversize_for(&self, pool: PoolKind, wanted: u64) -> Vec<WholeFree> {
        let list = match pool {
            PoolKind::Small => &self.small,
            PoolKind::Large => &self.large,
        };
        if let Some(free) = list.best_fit(wanted) {
            return self.as_whole(free).into_iter().collect();
        }
        let mut chosen = Vec::new();
        let mut released = 0;
        let mut below = list.largest_below(wanted);
        while let Some(free) = below.filter(|free| released < wanted && self.config.is_oversize(free.size)) {
            released += free.size;
            chosen.extend(self.as_whole(free));
            below = list.before(&free);
        }
        chosen
    }

    fn as_whole(&self, free: FreeBlock) -> Option<WholeFree> {
        let block = &self.blocks[free.block];
        (!block.is_split()).then(|| WholeFree {
            segment: block.segment,
            created: free.created,
            size: free.size,
            pool: self.segments[block.segment].pool,
            free_since: block.free_since,
        })
    }

    /// Bytes of the largest free block of a pool; 0: there is none.
    pub(super) fn largest_free(&self, pool: PoolKind) -> u64 {
        match pool {
            PoolKind::Small => self.small.largest(),
            PoolKind::Large => self.large.largest(),
        }
        .map_or(0, |free| free.size)
    }

    /// The segments, each with its blocks from its start.
    pub(super) fn segments(&self) -> impl Iterator<Item = (&Segment<P>, impl Iterator<Item = &Block>)> {
        self.segments.iter().map(|(_, segment)| {
            let first = Some(&self.blocks[segment.first]);
            let blocks = std::iter::successors(first, |block| block.next.map(|next| &self.blocks[next]));
            (segment, blocks)
        })
    }

    /// Whether the block, were it free, would serve the request.
    pub(super) fn could_serve(&self, id: BlockId, request: &Request) -> bool {
        let size = self.blocks[id].size;
        self.pool_of(id) == request.pool && size >= request.size && self.config.may_take(request, size)
    }

    /// Where a block starts, and how many bytes of it were asked for.
    pub(super) fn place_of(&self, id: BlockId) -> (P, u64) {
        let block = &self.blocks[id];
        (self.segments[block.segment].ptr.offset(block.offset), block.requested)
    }

    pub(super) fn size_of(&self, id: BlockId) -> u64 {
        self.blocks[id].size
    }

    pub(super) fn pool_of(&self, id: BlockId) -> PoolKind {
        self.segments[self.blocks[id].segment].pool
    }

    fn list(&mut self, id: BlockId) {
        let (pool, free) = self.listed(id);
        self.free_list(pool).insert(free);
    }

    fn unlist(&mut self, id: BlockId) {
        let (pool, free) = self.listed(id);
        self.free_list(pool).remove(&free);
    }

    /// The block as it stands on its free list.
    fn listed(&self, id: BlockId) -> (PoolKind, FreeBlock) {
        let block = &self.blocks[id];
        let segment = &self.segments[block.segment];
        (
            segment.pool,
            FreeBlock { size: block.size, created: segment.created, offset: block.offset, block: id },
        )
    }

    fn free_list(&mut self, pool: PoolKind) -> &mut FreeList {
        match pool {
            PoolKind::Small => &mut self.small,
            PoolKind::Large => &mut self.large,
        }
    }
}

/// A segment that is one free block.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeFree {
    segment: SegmentId,
    created: u64,
    pub(super) size: u64,
    pub(super) pool: PoolKind,
    /// The pool's clock when it became free.
    pub(super) free_since: u64,
}
