//! What the warm path does in an arena: it allocates and frees while nothing else needs to be done.

use std::num::NonZeroU64;

use super::{AllocatedBlock, Arena};
use crate::alloc::blocks::BlockId;
use crate::alloc::settings::{AllocatorConfig, Policy, Request};
use crate::alloc::stats::{Counting, StreamCounters};
use crate::types::{PoolKind, StreamId};

/// Which calls the warm path serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warm {
    /// None: calls take the slow path, best fit does not choose the blocks or does not split them, or requests are
    /// routed.
    Never,
    /// All. No segment is or will be expandable, and no searches are counted for garbage collection.
    Plain,
    /// All.
    General,
}

impl Arena {
    /// Notes which calls the warm path serves, after anything that this depends on has changed.
    pub(super) fn update_warm(&mut self) {
        let AllocatorConfig { policy, expandable_segments, .. } = self.store().config;
        let collects = self.store().config.collects();
        let is_best_fit = self.placement.is_none() && !self.store.private.whole && policy == Policy::Pytorch;
        self.warm = match !self.slow_path && !self.routed && is_best_fit {
            false => Warm::Never,
            true if self.store.expandable == 0 && !expandable_segments && !collects => Warm::Plain,
            true => Warm::General,
        };
    }

    /// Whether best fit chooses blocks and splits them, no segment is or will be expandable, and nothing else needs to
    /// be done.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.warm == Warm::Plain
    }

    /// Whether it is as a [plain](Self::is_plain) one, but segments may be expandable, and searches counted.
    #[inline(always)]
    pub(crate) fn is_general(&self) -> bool {
        self.warm == Warm::General
    }

    /// Allocates by best fit, in a [plain](Self::is_plain) arena.
    #[inline(always)]
    pub(crate) fn take_plain(&mut self, request: &Request, clock: u32) -> Counting<Option<AllocatedBlock>> {
        self.store.take::<false>(request, clock)
    }

    /// As [`take_plain`](Self::take_plain), in a [general](Self::is_general) arena.
    #[inline(always)]
    pub(crate) fn take_general(&mut self, request: &Request, clock: u32) -> Counting<Option<AllocatedBlock>> {
        self.store.take::<true>(request, clock)
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

    /// Frees a block in a [plain](Self::is_plain) arena. Returns false, with nothing changed, if other streams used the
    /// block or the operation needs settling.
    #[inline(always)]
    pub(crate) fn free_plain(&mut self, id: BlockId, clock: u32) -> bool {
        self.free_unused::<false>(id, clock)
    }

    /// As [`free_plain`](Self::free_plain), in a [general](Self::is_general) arena.
    #[inline(always)]
    pub(crate) fn free_general(&mut self, id: BlockId, clock: u32) -> bool {
        self.free_unused::<true>(id, clock)
    }

    #[inline(always)]
    fn free_unused<const EXPANDABLE: bool>(&mut self, id: BlockId, clock: u32) -> bool {
        let is_unused = self.store.blocks[id].uses.is_none();
        is_unused && self.store.make_free::<EXPANDABLE>(id, clock, StreamCounters::freed).is_ok()
    }

    /// Returns the pool of a block in a [plain](Self::is_plain) or [general](Self::is_general) arena.
    #[inline(always)]
    pub(crate) fn pool_of(&self, id: BlockId) -> PoolKind {
        self.store.blocks[id].pool
    }
}
