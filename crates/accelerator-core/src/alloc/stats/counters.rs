//! The contribution of one stream's blocks to the device statistics, counted without touching anything shared.
//!
//! A peak is the peak of a sum over all streams, so it seems that every allocation must see that sum. An escrow scheme
//! avoids this. Each stream's counters have *headroom*: how much they may add before any peak of the device could move.
//! The headroom of all streams together is the distance to the peaks, so peaks need no storage: each is the current
//! value plus all headroom. An operation that fits into its headroom moves no peak, and no other thread needs to know
//! of it. An operation that does not fit *needs settling*: it is refused before anything has changed, and repeated with
//! the headroom of all streams in hand. What it adds beyond that headroom moves the peaks. Then the headroom is
//! distributed again. The peaks are therefore the peaks of the sums in the order of the operations, as if a single lock
//! had serialised them.

use super::amounts::{Amounts, PoolAmounts};
use super::pair::{Pair, by_field};
use crate::types::PoolKind;

/// One stream's part of the device statistics.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    pools: [PoolCounters; 2],
    /// How much both pools together may add.
    all: Headroom,
    /// Whether no other stream is active, so that all headroom is here and only these counters can move a peak.
    pub(crate) is_alone: bool,
    /// Whether anything has been counted since the last summation.
    pub(crate) has_changed: bool,
    /// The number of blocks given out when [`has_become_idle`](Self::has_become_idle) was last called.
    given_out_before: i64,
}

#[derive(Debug, Default)]
struct PoolCounters {
    headroom: Headroom,
    /// The sums of everything ever added. They wrap, as in PyTorch.
    added: Counts,
    /// The current values plus the headroom, so that the current values need no storage.
    bound: Amounts,
}

/// How much may be added before a peak could move.
///
/// Blocks are both allocated and active, and each of the two has its own peak. `counts` has what may be added to both,
/// which is all that the warm path checks. The excess of either, beyond that, changes only when a block becomes pending
/// or ceases to be.
#[derive(Debug, Default)]
struct Headroom {
    counts: Counts,
    allocated_beyond: Pair,
    active_beyond: Pair,
}

/// The quantities that operations change.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Blocks that are both allocated and active, and their bytes.
    blocks: Pair,
    /// The requested part of these bytes, and the number of oversize blocks.
    requested: Pair,
    /// Free blocks that share their segment with others, and their bytes.
    split: Pair,
}

/// A block that is given out or comes back.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) pool: PoolKind,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
    /// Whether it counts as oversize.
    pub(crate) oversize: bool,
    /// The resulting change in the number and bytes of free blocks that share their segment with others.
    pub(crate) split: Pair,
}

/// The saved headroom of the small pool, the large pool and both together while bounds are lifted.
pub(crate) struct Bounds([Counts; 3]);

/// The operation was refused because a peak might move. Nothing has changed.
#[derive(Debug)]
pub(crate) struct NeedsSettling;

/// The result of an operation that is counted.
pub(crate) type Counting<T = ()> = Result<T, NeedsSettling>;

impl StreamCounters {
    /// Counts a block that is given out.
    #[inline(always)]
    pub(crate) fn given_out(&mut self, block: Counted) -> Counting {
        let own = &mut self.pools[block.pool as usize];
        let more = block.counts();
        if own.headroom.counts.lacks(more) || self.all.counts.lacks(more) {
            return Err(NeedsSettling);
        }
        own.headroom.counts = own.headroom.counts - more;
        self.all.counts = self.all.counts - more;
        own.added = own.added + Counts { split: block.split.increase(), ..more };
        self.has_changed = true;
        Ok(())
    }

    /// Counts a block that becomes free at once.
    #[inline(always)]
    pub(crate) fn freed(&mut self, block: Counted) -> Counting {
        self.split_changed(block)?;
        let Counts { blocks, requested, split: _ } = block.counts();
        for headroom in [&mut self.pools[block.pool as usize].headroom, &mut self.all] {
            headroom.counts.blocks = headroom.counts.blocks + blocks;
            headroom.counts.requested = headroom.counts.requested + requested;
        }
        Ok(())
    }

    /// Counts a block that was freed but is still used by streams.
    pub(crate) fn pending_begun(&mut self, pool: PoolKind, bytes: u64, oversize: bool) {
        self.has_changed = true;
        for headroom in [&mut self.pools[pool as usize].headroom, &mut self.all] {
            headroom.allocated_beyond = headroom.allocated_beyond + Pair::new(1, bytes as i64);
            headroom.counts.requested = headroom.counts.requested + Pair::new(0, oversize.into());
            headroom.level();
        }
    }

    /// Counts a pending block that no stream uses any more.
    #[inline(always)]
    pub(crate) fn pending_over(&mut self, block: Counted) -> Counting {
        self.split_changed(block)?;
        for headroom in [&mut self.pools[block.pool as usize].headroom, &mut self.all] {
            headroom.active_beyond = headroom.active_beyond + Pair::new(1, block.bytes as i64);
            headroom.counts.requested = headroom.counts.requested + Pair::new(block.requested as i64, 0);
            headroom.level();
        }
        Ok(())
    }

    #[inline(always)]
    fn split_changed(&mut self, block: Counted) -> Counting {
        let own = &mut self.pools[block.pool as usize];
        if own.headroom.counts.split.lacks(block.split) || self.all.counts.split.lacks(block.split) {
            return Err(NeedsSettling);
        }
        own.headroom.counts.split = own.headroom.counts.split - block.split;
        self.all.counts.split = self.all.counts.split - block.split;
        own.added.split = own.added.split + block.split.increase();
        self.has_changed = true;
        Ok(())
    }

    /// Returns the current values.
    pub(crate) fn current(&self) -> PoolAmounts {
        self.sum(PoolCounters::current)
    }

    /// Returns the sums of everything ever added.
    pub(crate) fn added(&self) -> PoolAmounts {
        self.sum(|pool| Headroom { counts: pool.added, ..Headroom::default() }.amounts())
    }

    /// Returns the current values plus the headroom: this stream's part of the peaks.
    pub(crate) fn bound(&self) -> PoolAmounts {
        PoolAmounts { all: self.current().all + self.all.amounts(), ..self.sum(|pool| pool.bound) }
    }

    /// Returns the headroom.
    pub(crate) fn headroom(&self) -> PoolAmounts {
        PoolAmounts { all: self.all.amounts(), ..self.sum(|pool| pool.headroom.amounts()) }
    }

    /// Sets the headroom.
    pub(crate) fn set_headroom(&mut self, PoolAmounts { small, large, all }: PoolAmounts) {
        for (pool, amounts) in self.pools.iter_mut().zip([small, large]) {
            pool.bound = pool.current() + amounts;
            pool.headroom = Headroom::of(amounts);
        }
        self.all = Headroom::of(all);
    }

    fn sum(&self, of: impl Fn(&PoolCounters) -> Amounts) -> PoolAmounts {
        let [small, large] = self.pools.each_ref().map(of);
        PoolAmounts { small, large, all: small + large }
    }

    /// Gives unlimited headroom, until [`set_bounds`](Self::set_bounds) restores the returned bounds.
    pub(crate) fn lift_bounds(&mut self) -> Bounds {
        let [small, large] = &mut self.pools;
        let all = [&mut small.headroom, &mut large.headroom, &mut self.all];
        Bounds(all.map(|headroom| std::mem::replace(&mut headroom.counts, Counts::BOUNDLESS)))
    }

    /// Restores the bounds. Anything added meanwhile beyond the saved headroom moves the peaks.
    pub(crate) fn set_bounds(&mut self, Bounds([small, large, all]): Bounds) {
        for (PoolCounters { headroom, bound, .. }, counts) in self.pools.iter_mut().zip([small, large]) {
            headroom.counts = counts - (Counts::BOUNDLESS - headroom.counts);
            *bound = *bound + headroom.cover();
        }
        self.all.counts = all - (Counts::BOUNDLESS - self.all.counts);
        self.all.cover();
    }

    /// Returns whether the current values are all 0 and nothing was given out since the last call.
    pub(crate) fn has_become_idle(&mut self) -> bool {
        let given_out = self.added().all.allocated.0[0];
        let before = std::mem::replace(&mut self.given_out_before, given_out);
        given_out == before && self.current() == PoolAmounts::default()
    }
}

impl PoolCounters {
    fn current(&self) -> Amounts {
        self.bound - self.headroom.amounts()
    }
}

impl Headroom {
    fn of(Amounts { allocated, active, requested, split }: Amounts) -> Self {
        let counts = Counts { blocks: Pair::default(), requested, split };
        let mut headroom = Self { counts, allocated_beyond: allocated, active_beyond: active };
        headroom.level();
        headroom
    }

    fn amounts(&self) -> Amounts {
        let Counts { blocks, requested, split } = self.counts;
        let (allocated, active) = (blocks + self.allocated_beyond, blocks + self.active_beyond);
        Amounts { allocated, active, requested, split }
    }

    /// Raises negative headroom to 0. Returns by how much.
    fn cover(&mut self) -> Amounts {
        let missing = self.amounts().missing();
        if missing != Amounts::default() {
            *self = Self::of(self.amounts() + missing);
        }
        missing
    }

    /// Moves the headroom common to allocated and active blocks to where the warm path looks.
    fn level(&mut self) {
        let both = self.allocated_beyond.least(self.active_beyond);
        self.counts.blocks = self.counts.blocks + both;
        self.allocated_beyond = self.allocated_beyond - both;
        self.active_beyond = self.active_beyond - both;
    }
}

impl Counted {
    #[inline(always)]
    fn counts(&self) -> Counts {
        let Self { bytes, requested, oversize, split, .. } = *self;
        let (blocks, requested) = (Pair::new(1, bytes as i64), Pair::new(requested as i64, oversize.into()));
        Counts { blocks, requested, split }
    }
}

by_field!(Counts { blocks, requested, split });

impl Counts {
    /// More than any operation adds.
    const BOUNDLESS: Self = {
        let pair = Pair([i64::MAX / 4; 2]);
        Self { blocks: pair, requested: pair, split: pair }
    };

    /// Returns whether any quantity is smaller than in `more`.
    #[inline(always)]
    fn lacks(&self, more: Self) -> bool {
        self.blocks.lacks(more.blocks) || self.requested.lacks(more.requested) || self.split.lacks(more.split)
    }
}

#[cfg(test)]
mod tests;
