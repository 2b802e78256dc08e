//! The counters, blocks and free lists of one stream, independent of driver and policy.

mod bitmap;
mod by_position;
#[cfg(debug_assertions)]
mod check;
mod claim;
mod exact;
mod free_lists;
mod free_segments;
mod id;
mod pages;
mod placement;
mod private;
mod store;
mod warm;

use std::any::Any;
use std::num::NonZeroU64;

pub(crate) use self::exact::SegmentState;
pub(crate) use self::free_lists::FreeLists;
pub(crate) use self::free_segments::{DetachedSegment, FreeSegment};
pub(crate) use self::id::ArenaId;
pub(crate) use self::placement::Placement;
pub(crate) use self::private::{OwnSegments, Private};
pub(crate) use self::store::{AllocatedBlock, Count, Store};
use self::warm::Warm;
use super::blocks::{Block, BlockId, Segment, SegmentId, State, User, Users};
use super::history::{CaptureContext, Recording};
use super::settings::{AllocatorConfig, Policy, Request, RoundupDivisions, SMALL_SEGMENT};
use super::stats::{Counting, StreamCounters};
use crate::types::{MemPoolId, StreamId};

/// The counters, blocks and free lists of one stream. Free blocks never move between streams, so each stream has an
/// arena with its own lock.
///
/// [`ArenaId::SHARED`] has a [`Placement`] and serves all streams.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Whether calls take the slow path: recording is on, or caching is off.
    slow_path: bool,
    /// The functions that serve calls by best fit. The warm path checks nothing else.
    warm: Warm,
    /// Whether requests of the stream may have to go to a private pool instead.
    routed: bool,
    /// Whether requests are rounded up to more than whole blocks.
    divides: bool,
    recording: Option<Recording>,
    /// The blocks, if best fit chooses them; empty if there is a placement. Not an enum, because the warm path would
    /// have to check the variant.
    store: Store,
    placement: Option<Box<dyn Placement>>,
}

impl Arena {
    /// Creates the arena of a stream, or with a placement an arena shared by all streams, whose stream is
    /// [`StreamId::SHARED`].
    pub(crate) fn new(
        id: ArenaId,
        stream: StreamId,
        placement: Option<Box<dyn Placement>>,
        config: AllocatorConfig,
        recording: Option<Recording>,
    ) -> Self {
        let store = Store::new(id, stream, FreeLists::default());
        let (slow_path, routed, divides, warm) = (false, false, false, Warm::Never);
        let mut arena = Self { slow_path, warm, routed, divides, recording, store, placement };
        arena.configure(config, recording);
        arena
    }

    /// Prepares memory for so many blocks, so that the first allocations need not wait for the operating system.
    pub(crate) fn prepare(&mut self, blocks: usize) {
        self.store_mut().blocks.prepare(blocks);
    }

    /// Makes an arena without blocks part of a private pool.
    pub(crate) fn assign(
        &mut self,
        stream: StreamId,
        private: Private,
        config: AllocatorConfig,
        recording: Option<Recording>,
    ) {
        let store = self.store_mut();
        (store.stream, store.private) = (stream, private);
        self.configure(config, recording);
    }

    /// Makes an arena without blocks part of no private pool.
    pub(crate) fn leave_pool(&mut self) {
        self.store_mut().private = Private::default();
    }

    /// From now on, hands out free blocks whole.
    pub(crate) fn set_whole(&mut self) {
        self.store_mut().private.whole = true;
        self.update_warm();
    }

    /// Sets whether requests may have to go to a private pool.
    pub(crate) fn set_routed(&mut self, routed: bool) {
        self.routed = routed;
        self.update_warm();
    }

    /// Sets the device's settings and recording options.
    pub(crate) fn configure(&mut self, config: AllocatorConfig, recording: Option<Recording>) {
        self.store_mut().config = self.in_pool(config);
        self.slow_path = !config.caching || recording.is_some();
        self.divides = config.roundup_power2_divisions != RoundupDivisions::default();
        self.recording = recording;
        self.update_warm();
    }

    /// Returns the settings that an arena of a private pool follows. One for a single stream cannot follow the policy
    /// `compact`, and a source of its own has no pages.
    fn in_pool(&self, config: AllocatorConfig) -> AllocatorConfig {
        let Private { pool, source, paged, .. } = self.private();
        if self.is_shared() {
            return config;
        }
        if *paged {
            let (policy, expandable_segments, large_segment_size) = (Policy::Pytorch, true, SMALL_SEGMENT);
            return AllocatorConfig { policy, expandable_segments, large_segment_size, ..config };
        }
        let policy = if pool.is_default() { config.policy } else { Policy::Pytorch };
        let expandable_segments = config.expandable_segments && source.is_none();
        AllocatorConfig { policy, expandable_segments, ..config }
    }

    pub(crate) fn id(&self) -> ArenaId {
        self.store().arena
    }

    /// Returns the stream that it serves: [`StreamId::SHARED`] if it serves all.
    pub(crate) fn stream(&self) -> StreamId {
        self.store().stream
    }

    pub(crate) fn config(&self) -> &AllocatorConfig {
        &self.store().config
    }

    pub(crate) fn is_routed(&self) -> bool {
        self.routed
    }

    /// Returns the private pool that it belongs to.
    pub(crate) fn private(&self) -> &Private {
        &self.store().private
    }

    pub(crate) fn mem_pool(&self) -> MemPoolId {
        self.private().pool
    }

    /// Returns whether it has neither segments nor reservations.
    pub(crate) fn is_empty(&self) -> bool {
        let has_ranges = self.placement.as_ref().is_some_and(|placement| placement.has_ranges());
        !has_ranges && self.store().blocks.segments().next().is_none()
    }

    pub(crate) fn takes_slow_path(&self) -> bool {
        self.slow_path
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.placement.is_some()
    }

    /// Returns the function that captures the contexts of allocations.
    pub(crate) fn capture(&self) -> Option<CaptureContext> {
        self.recording?.capture
    }

    /// Returns the function that captures the contexts of frees.
    pub(crate) fn capture_of_frees(&self) -> Option<CaptureContext> {
        self.recording?.capture_of_frees()
    }

    pub(crate) fn counters(&self) -> &StreamCounters {
        &self.store().counters
    }

    pub(crate) fn counters_mut(&mut self) -> &mut StreamCounters {
        &mut self.store_mut().counters
    }

    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.placement.as_ref().map_or(&self.store, |placement| placement.store())
    }

    #[inline]
    pub(crate) fn store_mut(&mut self) -> &mut Store {
        match &mut self.placement {
            None => &mut self.store,
            Some(placement) => placement.store_mut(),
        }
    }

    /// Returns the placement as its own type.
    ///
    /// # Panics
    /// If the arena was not created with a placement of this type.
    pub(crate) fn placement<T: Placement>(&mut self) -> &mut T {
        let placement = self.placement.as_deref_mut().map(|placement| placement as &mut dyn Any);
        let placement = placement.and_then(|placement| placement.downcast_mut());
        placement.unwrap_or_else(|| unreachable!("the arena was made with this placement"))
    }

    /// Returns the rounded request for this many bytes, which must be fewer than
    /// [`TOO_LARGE`](super::settings::TOO_LARGE).
    #[inline(always)]
    pub(crate) fn request(&self, requested: NonZeroU64) -> Request {
        if self.divides { self.store().config.request(requested.get()) } else { Request::in_blocks(requested.get()) }
    }

    /// Adds a new segment and allocates its front.
    pub(crate) fn take_from_new_segment(
        &mut self,
        segment: Segment,
        request: &Request,
        clock: u32,
    ) -> Counting<AllocatedBlock> {
        let taken = self.store_mut().take_from_new_segment(segment, request, clock);
        self.update_warm();
        taken
    }

    /// Allocates a free block, if one can serve the request.
    pub(crate) fn take(&mut self, request: &Request, stream: StreamId, clock: u32) -> Counting<Option<AllocatedBlock>> {
        match &mut self.placement {
            None => self.store.take(request, clock),
            Some(placement) => placement.take(request, stream),
        }
    }

    /// As [`take`](Self::take), in an arena of a private pool, and without blocks of expandable segments.
    pub(crate) fn take_outside_pages(&mut self, request: &Request, clock: u32) -> Counting<Option<AllocatedBlock>> {
        let expandable_segments = std::mem::replace(&mut self.store.config.expandable_segments, false);
        let taken = self.store.take(request, clock);
        self.store.config.expandable_segments = expandable_segments;
        taken
    }

    /// Frees a block for its user. Returns the streams that it waits for, or `None` if it is free at once. PyTorch:
    /// `free`.
    #[inline(always)]
    pub(crate) fn free(&mut self, id: BlockId, clock: u32) -> Counting<Option<Users>> {
        match self.free_when_done(id) {
            None => self.put_back_freed(id, clock).map(|()| None),
            users => Ok(users),
        }
    }

    /// Makes a block pending if other streams used it. It stays active until these streams have finished with it.
    /// Returns them, or `None`, with nothing changed, if there are none.
    #[inline(always)]
    pub(crate) fn free_when_done(&mut self, id: BlockId) -> Option<Users> {
        let limits_splits = self.limits_splits();
        let Store { blocks, uses, counters, config, .. } = self.store_mut();
        let block = &mut blocks[id];
        let users = uses.take(block)?;
        (block.state, block.free_since) = (State::Pending, users.count());
        let oversize = limits_splits && config.is_oversize(block.size);
        counters.pending_begun(block.pool, block.size, oversize);
        Some(users)
    }

    /// Notes that one of the streams that a pending block waits for has finished. Returns whether it was the last.
    #[inline]
    pub(crate) fn use_completed(&mut self, id: BlockId, clock: u32) -> Counting<bool> {
        match self.end_use(id) {
            true => self.put_back_pending(id, clock).map(|()| true),
            false => Ok(false),
        }
    }

    /// Returns whether a pending block waits for one stream only. Otherwise, it waits for one less from now on.
    #[inline(always)]
    fn end_use(&mut self, id: BlockId) -> bool {
        match &mut self.store_mut().blocks[id] {
            Block { state: State::Pending, free_since: uses @ 2.., .. } => {
                *uses -= 1;
                false
            }
            Block { state: State::Pending, .. } => true,
            _ => unreachable!("only freed blocks wait for streams"),
        }
    }

    /// Makes a block free that no other stream used.
    #[inline(never)]
    pub(crate) fn put_back_freed(&mut self, id: BlockId, clock: u32) -> Counting {
        self.put_back::<false>(id, clock)
    }

    /// As [`put_back_freed`](Self::put_back_freed), for a pending block.
    #[inline(never)]
    fn put_back_pending(&mut self, id: BlockId, clock: u32) -> Counting {
        self.put_back::<true>(id, clock)
    }

    /// Inlined once for each way to count, so that counting takes no call through a pointer.
    #[inline(always)]
    fn put_back<const PENDING: bool>(&mut self, id: BlockId, clock: u32) -> Counting {
        let count: Count = if PENDING { StreamCounters::pending_over } else { StreamCounters::freed };
        match &mut self.placement {
            None => self.store.make_free(id, clock, count),
            Some(placement) => placement.put_back(id, count),
        }
    }

    fn limits_splits(&self) -> bool {
        self.placement.as_ref().is_none_or(|placement| placement.limits_splits())
    }

    /// Records that a stream other than the block's own uses it.
    pub(crate) fn record_use(&mut self, id: BlockId, user: User) {
        let Store { blocks, uses, .. } = self.store_mut();
        uses.record(&mut blocks[id], user);
    }

    /// Returns whether the block, if it were free, could serve the request.
    pub(crate) fn could_serve(&self, id: BlockId, request: &Request) -> bool {
        let Block { size, pool, expandable, .. } = *self.block(id);
        let config = &self.store().config;
        let fits = || (config.expandable_segments || !expandable) && config.fit(request, size).is_some();
        pool == request.pool && size >= request.size && (!self.limits_splits() || fits())
    }

    /// Returns the stream that a block was allocated on.
    pub(crate) fn stream_of(&self, id: BlockId) -> StreamId {
        self.placement.as_ref().map_or(self.store.stream, |placement| placement.stream_of(id))
    }

    /// Returns the stream that a segment serves.
    pub(crate) fn stream_of_segment(&self, segment: SegmentId) -> StreamId {
        self.placement.as_ref().map_or(self.store.stream, |placement| placement.stream_of_segment(segment))
    }

    /// Returns the free bytes of chunks that are partly in use, if it has chunks.
    pub(crate) fn free_in_used_chunks(&self) -> u64 {
        self.placement.as_ref().map_or(0, |placement| placement.free_in_used_chunks())
    }

    /// Returns the alias segments, whose memory belongs to other segments, each with its blocks.
    pub(crate) fn aliases(&self) -> Vec<(SegmentId, Vec<BlockId>)> {
        self.placement.as_ref().map_or_else(Vec::new, |placement| placement.aliases())
    }

    #[inline(always)]
    pub(crate) fn block(&self, id: BlockId) -> &Block {
        &self.store().blocks[id]
    }
}
