//! What the warm path does in an arena: it allocates and frees while nothing else needs to be done.

use std::num::NonZeroU64;

use super::store::split_by_free;
use super::{AllocatedBlock, Arena, Store};
use crate::alloc::blocks::{Block, BlockId, FreeList, Segment, SlotsMut, State, if_free};
use crate::alloc::settings::{Policy, Request, SMALL_SIZE};
use crate::alloc::stats::{Counting, NeedsSettling, Packed, StreamCounters};
use crate::types::{PoolKind, StreamId};

/// Which functions serve calls by best fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warm {
    /// None: calls take the slow path, best fit does not choose the blocks or does not split them, or requests are
    /// routed.
    Never,
    /// The plain ones, under [plain](crate::AllocatorConfig::is_plain) settings. No segment is expandable, or so large
    /// that its size is not counted in a word.
    Plain,
    /// The same, compiled for expandable segments as well.
    Expandable,
    /// Those that work under all settings.
    General,
}

impl Arena {
    /// Chooses the functions, after anything that this depends on has changed.
    pub(super) fn update_warm(&mut self) {
        let Store { config, private, expandable, has_had_huge, .. } = self.store();
        let is_best_fit = self.placement.is_none() && !private.whole && config.policy == Policy::Pytorch;
        self.warm = match !self.slow_path && !self.routed && is_best_fit {
            false => Warm::Never,
            true if !config.splits_plainly() || *has_had_huge => Warm::General,
            true if config.expandable_segments => Warm::Expandable,
            true if *expandable > 0 => Warm::General, // which finds other blocks
            true => Warm::Plain,
        };
    }

    /// Whether the plain functions serve calls.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.warm == Warm::Plain
    }

    /// Whether best fit chooses blocks and splits them, and nothing else needs to be done.
    #[inline(always)]
    pub(crate) fn is_warm(&self) -> bool {
        self.warm != Warm::Never
    }

    /// Allocates by best fit, in a [warm](Self::is_warm) arena. As the other functions here, it does not work while
    /// bounds are lifted.
    #[inline(never)]
    pub(crate) fn take_warm(&mut self, request: &Request, clock: u32) -> Counting<Option<AllocatedBlock>> {
        let (Request { requested, size, pool }, store) = (*request, &mut self.store);
        let taken = match (self.warm, pool) {
            (Warm::Plain, PoolKind::Small) => store.take_plain::<false, false>(requested, size, || clock),
            (Warm::Plain, PoolKind::Large) => store.take_plain::<true, false>(requested, size, || clock),
            (Warm::Expandable, PoolKind::Small) => store.take_plain::<false, true>(requested, size, || clock),
            (Warm::Expandable, PoolKind::Large) => store.take_plain::<true, true>(requested, size, || clock),
            (Warm::General | Warm::Never, _) => Err(NeedsSettling),
        };
        taken.or_else(|_| store.take(request, clock)) // the plain functions refuse more than they must
    }

    /// Makes a block free that no stream uses any more; if `PENDING`, after it was freed.
    #[inline(never)]
    pub(crate) fn put_back_warm<const PENDING: bool>(&mut self, id: BlockId, clock: u32) -> Counting {
        let freed = match self.warm {
            Warm::Plain => self.store.free_plain::<PENDING, false>(id, |_| clock),
            Warm::Expandable => self.store.free_plain::<PENDING, true>(id, |_| clock),
            Warm::General | Warm::Never => Err(NeedsSettling),
        };
        freed.or_else(|_| self.put_back::<PENDING>(id, clock)) // as above
    }

    /// Allocates a block by best fit for a request of the large pool or of the small one, in a [plain](Self::is_plain)
    /// arena.
    #[inline(always)]
    pub(crate) fn take_plain<const LARGE: bool>(
        &mut self,
        requested: u64,
        size: u64,
        clock: impl Fn() -> u32,
    ) -> Counting<Option<AllocatedBlock>> {
        self.store.take_plain::<LARGE, false>(requested, size, clock)
    }

    /// Allocates free bytes of a placement, if nothing else needs to be done before or after.
    #[inline(always)]
    pub(crate) fn take_at_once(&mut self, requested: NonZeroU64, stream: StreamId) -> Option<AllocatedBlock> {
        if self.slow_path || self.routed {
            return None;
        }
        let request = self.request(requested);
        self.placement.as_mut()?.take_at_once(&request, stream)
    }

    /// Frees a block of a placement, if nothing else needs to be done. Returns whether it did.
    #[inline(always)]
    pub(crate) fn free_at_once(&mut self, id: BlockId) -> bool {
        self.placement.as_mut().filter(|_| !self.slow_path).is_some_and(|placement| placement.free_at_once(id))
    }

    /// Returns whether other streams used a block of a [warm](Self::is_warm) arena.
    #[inline(always)]
    pub(crate) fn is_used(&self, id: BlockId) -> bool {
        self.store.blocks[id].uses.are_any()
    }

    /// Frees a block that no other stream used, in a [plain](Self::is_plain) arena. Returns false, with nothing
    /// changed, if the operation may need settling.
    #[inline(always)]
    pub(crate) fn free_plain(&mut self, id: BlockId, clock: impl Fn(PoolKind) -> u32) -> bool {
        self.store.free_plain::<false, false>(id, clock).is_ok()
    }

    /// As [`use_completed`](Self::use_completed), in a [plain](Self::is_plain) arena.
    #[inline(always)]
    pub(crate) fn use_completed_plain(&mut self, id: BlockId, clock: impl Fn(PoolKind) -> u32) -> Counting {
        match self.end_use(id) {
            true => self.store.free_plain::<true, false>(id, clock),
            false => Ok(()),
        }
    }

    /// As [`use_completed`](Self::use_completed), but does not work while bounds are lifted.
    #[inline(always)]
    pub(crate) fn use_completed_warm(&mut self, id: BlockId, clock: u32) -> Counting {
        match self.end_use(id) {
            true => self.put_back_warm::<true>(id, clock),
            false => Ok(()),
        }
    }
}

impl Store {
    /// Allocates the best-fitting free block or its front. PyTorch: `get_free_block`, `alloc_found_block`.
    ///
    /// `EXPANDABLE`, here and below: whether segments are expandable. A run-time check would cost the default
    /// instructions.
    #[inline(always)]
    fn take_plain<const LARGE: bool, const EXPANDABLE: bool>(
        &mut self,
        requested: u64,
        size: u64,
        clock: impl Fn() -> u32,
    ) -> Counting<Option<AllocatedBlock>> {
        // Looked for ahead of the borrows below, which the default needs only once.
        let of_expandable = if EXPANDABLE { self.best_of_expandable::<LARGE>(size) } else { None };
        let Self { blocks, free, counters, arena, .. } = self;
        let (mut blocks, segments) = blocks.parts();
        let list = free.of_pool::<LARGE>();
        let best = if EXPANDABLE { of_expandable } else { list.candidate::<LARGE>(&blocks, size) };
        let Some(id) = best else { return Ok(None) };
        let Block { size: whole, expandable, .. } = blocks[id];
        let Some(rest) = whole.checked_sub(size) else { return Ok(None) };
        // Free pages of expandable segments can always go back to the driver, so they do not count as split.
        let (was_split, counts_split) = (blocks[id].is_split(), !EXPANDABLE || !expandable);
        if rest > if LARGE && !EXPANDABLE { SMALL_SIZE } else { 0 } {
            let Some(vacant) = blocks.vacant() else { return Err(NeedsSettling) };
            let block = Packed::new(1, size as i64);
            let split = match was_split {
                _ if !counts_split => Packed::default(),
                true => Packed::ONE.minus(block),
                false => Packed::new(2, whole as i64).minus(block),
            };
            counters.given_out_plain::<LARGE>(size, requested, split)?;
            if counts_split && !was_split {
                counters.split_added::<LARGE>(1, rest);
            }
            list.replace(&mut blocks, id, vacant);
            let pool = if LARGE { PoolKind::Large } else { PoolKind::Small };
            blocks.cut(id, vacant, size, (pool, EXPANDABLE && expandable), clock);
        } else {
            let counts_split = counts_split && was_split;
            let split = if counts_split { Packed::new(-1, -(whole as i64)) } else { Packed::default() };
            counters.given_out_plain::<LARGE>(whole, requested, split)?;
            list.remove(&mut blocks, id);
        }
        let block = &mut blocks[id];
        (block.state, block.requested) = (State::Allocated, requested);
        let Segment { base, position, .. } = segments[block.segment];
        let (offset, size) = (block.position.wrapping_sub(position), block.size);
        Ok(Some(AllocatedBlock { arena: *arena, block: id, base, offset, size }))
    }

    /// Returns the best-fitting free block under expandable segments.
    #[inline(always)]
    fn best_of_expandable<const LARGE: bool>(&mut self, size: u64) -> Option<BlockId> {
        let best = self.free.of_pool::<LARGE>().candidate::<LARGE>(&self.blocks, size);
        let best = best.filter(|id| self.blocks[*id].size >= size)?;
        if self.blocks[best].expandable { self.instead_of_expandable(best) } else { Some(best) }
    }

    /// Makes a block free and merges it with its free neighbours; if `PENDING`, after it was freed. PyTorch:
    /// `free_block`.
    #[inline(always)]
    fn free_plain<const PENDING: bool, const EXPANDABLE: bool>(
        &mut self,
        id: BlockId,
        clock: impl Fn(PoolKind) -> u32,
    ) -> Counting {
        match self.blocks[id].pool {
            PoolKind::Small => self.free_plain_in::<false, PENDING, EXPANDABLE>(id, || clock(PoolKind::Small)),
            PoolKind::Large => self.free_plain_in::<true, PENDING, EXPANDABLE>(id, || clock(PoolKind::Large)),
        }
    }

    /// As [`free_plain`](Self::free_plain), for a block of the large pool or of the small one.
    #[inline(always)]
    fn free_plain_in<const LARGE: bool, const PENDING: bool, const EXPANDABLE: bool>(
        &mut self,
        id: BlockId,
        clock: impl Fn() -> u32,
    ) -> Counting {
        let Self { blocks, free, counters, .. } = self;
        let (mut blocks, _) = blocks.parts();
        let Block { size, requested, .. } = blocks[id];
        let block = Packed::new(1, size as i64);
        if counters.may_refuse_free::<LARGE>(size) && refuses_free::<LARGE>(&blocks, id, counters) {
            return Err(NeedsSettling);
        }
        match PENDING {
            true => counters.pending_over_plain::<LARGE>(size, requested),
            false => counters.freed_plain::<LARGE>(size, requested),
        }
        let list = free.of_pool::<LARGE>();
        let mut split = block;
        // What a block has is read where it is needed, since this is cheaper than to keep it.
        if let Some(next) = blocks[id].next
            && blocks[next].state == State::Free
        {
            list.remove(&mut blocks, next);
            blocks.swallow(id, next);
            split = split.minus(Packed::ONE);
        }
        // Compiled once for each of the two blocks, so that what is known of one need not be looked up again.
        let mut freed = Freed::<LARGE, EXPANDABLE> { blocks, list, counters, block, size };
        if let Some(previous) = freed.blocks[id].previous
            && freed.blocks[previous].state == State::Free
        {
            freed.list.remove(&mut freed.blocks, previous);
            freed.blocks[previous].requested = freed.blocks[id].requested;
            freed.blocks.swallow(previous, id);
            freed.list_whole(previous, split.minus(Packed::ONE), clock());
        } else {
            freed.list_whole(id, split, clock());
        }
        Ok(())
    }
}

/// What the end of a free needs.
struct Freed<'a, const LARGE: bool, const EXPANDABLE: bool> {
    blocks: SlotsMut<'a>,
    list: &'a mut FreeList,
    counters: &'a mut StreamCounters,
    /// The freed block as a word, and its size.
    block: Packed,
    size: u64,
}

impl<const LARGE: bool, const EXPANDABLE: bool> Freed<'_, LARGE, EXPANDABLE> {
    /// Lists the block that has been merged, and counts the change of split blocks.
    #[inline(always)]
    fn list_whole(&mut self, id: BlockId, mut split: Packed, since: u32) {
        let whole = &mut self.blocks[id];
        (whole.state, whole.free_since) = (State::Free, since);
        match whole.is_split() {
            _ if EXPANDABLE && whole.expandable => split = Packed::default(),
            true => self.counters.split_added::<LARGE>(i64::from(split == self.block), self.size),
            false => split = split.minus(Packed::new(1, whole.size as i64)),
        }
        self.counters.split_changed::<LARGE>(split);
        self.list.insert(&mut self.blocks, id);
    }
}

/// Returns whether a block is refused to become free at once. Threads that allocate on streams of their own often need
/// to know.
#[cold]
#[inline(never)]
fn refuses_free<const LARGE: bool>(blocks: &[Block], id: BlockId, counters: &StreamCounters) -> bool {
    let Block { size, previous, next, .. } = blocks[id];
    let [count, bytes] = split_by_free(blocks, id, (if_free(blocks, previous), if_free(blocks, next))).0;
    counters.refuses_free::<LARGE>(size, Packed::new(count, bytes))
}
