//! What the warm path does in an arena: it allocates and frees while nothing else needs to be done.

use std::num::NonZeroU64;

use super::{AllocatedBlock, Arena, Store};
use crate::alloc::blocks::{Block, BlockId, Segment, State};
use crate::alloc::settings::{Policy, Request, SMALL_SIZE};
use crate::alloc::stats::{Counting, NeedsSettling, Packed};
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
        let best = self.free.of_pool::<LARGE>().best_fit_of_pool::<LARGE>(&self.blocks, size);
        let Some(mut id) = best else { return Ok(None) };
        if EXPANDABLE && self.blocks[id].expandable {
            let Some(instead) = self.instead_of_expandable(id) else { return Ok(None) };
            id = instead;
        }
        let Self { blocks, free, counters, arena, .. } = self;
        let (mut blocks, segments) = blocks.parts();
        let list = free.of_pool::<LARGE>();
        let Block { size: whole, expandable, .. } = blocks[id];
        // Free pages of expandable segments can always go back to the driver, so they do not count as split.
        let (was_split, counts_split) = (blocks[id].is_split(), !EXPANDABLE || !expandable);
        let rest = whole - size;
        if rest > if LARGE && !EXPANDABLE { SMALL_SIZE } else { 0 } {
            let Some(vacant) = blocks.vacant() else { return Err(NeedsSettling) };
            let split = match was_split {
                _ if !counts_split => Packed::default(),
                true => Packed::new(0, -(size as i64)),
                false => Packed::new(1, rest as i64),
            };
            counters.given_out_plain::<LARGE>(size, requested, split)?;
            if counts_split && !was_split {
                counters.split_added::<LARGE>(1, rest);
            }
            list.remove(&mut blocks, id);
            let pool = if LARGE { PoolKind::Large } else { PoolKind::Small };
            blocks.cut(id, vacant, size, (pool, EXPANDABLE && expandable), clock());
            list.insert(&mut blocks, vacant);
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
        let Block { size, requested, .. } = self.blocks[id];
        if self.counters.may_refuse_free::<LARGE>(size) && self.refuses_free::<LARGE>(id) {
            return Err(NeedsSettling);
        }
        let Self { blocks, free, counters, .. } = self;
        let (mut blocks, _) = blocks.parts();
        match PENDING {
            true => counters.pending_over_plain::<LARGE>(size, requested),
            false => counters.freed_plain::<LARGE>(size, requested),
        }
        let list = free.of_pool::<LARGE>();
        let (mut merged, mut more) = (id, 1);
        // What a block has is read where it is needed, since this is cheaper than to keep it.
        if let Some(next) = blocks[id].next
            && blocks[next].state == State::Free
        {
            list.remove(&mut blocks, next);
            blocks.swallow(id, next);
            more = 0;
        }
        if let Some(previous) = blocks[id].previous
            && blocks[previous].state == State::Free
        {
            list.remove(&mut blocks, previous);
            blocks[previous].requested = blocks[id].requested;
            blocks.swallow(previous, id);
            (merged, more) = (previous, more - 1);
        }
        let block = &mut blocks[merged];
        (block.state, block.free_since) = (State::Free, clock());
        let split = match block.is_split() {
            _ if EXPANDABLE && block.expandable => Packed::default(),
            true => {
                counters.split_added::<LARGE>(i64::from(more > 0), size);
                Packed::new(more, size as i64)
            }
            false => Packed::new(more - 1, -((block.size - size) as i64)),
        };
        counters.split_changed::<LARGE>(split);
        list.insert(&mut blocks, merged);
        Ok(())
    }

    /// Returns whether a block is refused to become free at once. Threads that allocate on streams of their own often
    /// need to know.
    #[cold]
    #[inline(never)]
    fn refuses_free<const LARGE: bool>(&self, id: BlockId) -> bool {
        let Block { size, previous, next, .. } = self.blocks[id];
        let free = (self.blocks.free(previous), self.blocks.free(next));
        let [count, bytes] = self.split_by_free(id, free).0;
        self.counters.refuses_free::<LARGE>(size, Packed::new(count, bytes))
    }
}
