//! What one stream's blocks add to the statistics of the device, counted without touching anything shared.
//!
//! A peak is that of a sum over all streams, so it seems that whoever adds must see that sum. Escrow avoids it: each
//! account has *room*, so much as it may add before any peak of the device could move, and the room of all accounts together
//! is what is missing to the peak. So the peaks need not be written down: they are what there is and all the room. An
//! operation that fits moves no peak, and nobody else need know. One that does not fit is refused before anything has changed, and
//! done again with the room of all accounts at hand (`CachingAllocator::settled`): what it adds beyond that moves the peaks,
//! and room is dealt out anew. So peaks are those of the sums in the order of the operations, as if each had taken one lock.

use std::ops::{Add, Sub};

use super::amounts::{Amounts, Share};
use super::pair::Pair;
use crate::types::PoolKind;

/// Part of the device's statistics: that of one stream.
#[derive(Debug, Default)]
pub(super) struct Account {
    pools: [PoolAccount; 2],
    /// What both pools together may add.
    all: Room,
    /// Whether no other account has anything, so that all room is here and no peak moves without this account.
    pub(super) is_alone: bool,
    /// Whether anything was counted since somebody last summed up.
    pub(super) has_changed: bool,
    /// How many blocks had been given out when somebody last asked whether it rests.
    given_out_before: i64,
}

#[derive(Debug, Default)]
struct PoolAccount {
    room: Room,
    /// The sums of all that was ever added; they wrap, as in PyTorch.
    added: Counts,
    /// What there is and the room together: so what there is needs no numbers of its own.
    bound: Amounts,
}

/// What may be added before a peak could move.
///
/// Blocks are both allocated and active, each with a peak of its own. What may be added to both is in `counts`, and all that
/// the warm path looks at. Only where a block begins or ceases to be pending does what is beyond that change.
#[derive(Debug, Default)]
struct Room {
    counts: Counts,
    allocated_beyond: Pair,
    active_beyond: Pair,
}

/// What operations change.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Blocks that are allocated and active, and their bytes.
    blocks: Pair,
    /// What of these bytes was asked for, and how many of the blocks are kept whole.
    requested: Pair,
    /// Free blocks that share their segment, and their bytes.
    split: Pair,
}

/// A block that is given out or comes back.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub(super) pool: PoolKind,
    pub(super) bytes: u64,
    pub(super) requested: u64,
    /// Whether it is kept whole.
    pub(super) oversize: bool,
    /// How many more free blocks share their segment by this, and how many bytes they have more.
    pub(super) split: Pair,
}

/// Room of the pools and of both that was lifted.
pub(super) struct Bounds([Counts; 3]);

/// An operation was refused, since a peak might move; nothing has changed.
#[derive(Debug)]
pub(super) struct NoRoom;

impl Account {
    /// Counts a block that is given out.
    #[inline(always)]
    pub(super) fn given_out(&mut self, block: Counted) -> Result<(), NoRoom> {
        let own = &mut self.pools[block.pool as usize];
        let more = block.counts();
        if own.room.counts.lacks(more) || self.all.counts.lacks(more) {
            return Err(NoRoom);
        }
        own.room.counts = own.room.counts - more;
        self.all.counts = self.all.counts - more;
        own.added = own.added + Counts { split: block.split.increase(), ..more };
        self.has_changed = true;
        Ok(())
    }

    /// Counts a block that is free at once.
    #[inline(always)]
    pub(super) fn freed(&mut self, block: Counted) -> Result<(), NoRoom> {
        self.split_changed(block)?;
        let Counts { blocks, requested, split: _ } = block.counts();
        for room in [&mut self.pools[block.pool as usize].room, &mut self.all] {
            room.counts.blocks = room.counts.blocks + blocks;
            room.counts.requested = room.counts.requested + requested;
        }
        Ok(())
    }

    /// Counts a block that was freed and is still in use by streams.
    pub(super) fn pending_begun(&mut self, pool: PoolKind, bytes: u64, oversize: bool) {
        self.has_changed = true;
        for room in [&mut self.pools[pool as usize].room, &mut self.all] {
            room.allocated_beyond = room.allocated_beyond + Pair::new(1, bytes as i64);
            room.counts.requested = room.counts.requested + Pair::new(0, oversize.into());
            room.level();
        }
    }

    /// Counts a block that no stream uses any more.
    pub(super) fn pending_over(&mut self, block: Counted) -> Result<(), NoRoom> {
        self.split_changed(block)?;
        for room in [&mut self.pools[block.pool as usize].room, &mut self.all] {
            room.active_beyond = room.active_beyond + Pair::new(1, block.bytes as i64);
            room.counts.requested = room.counts.requested + Pair::new(block.requested as i64, 0);
            room.level();
        }
        Ok(())
    }

    #[inline(always)]
    fn split_changed(&mut self, block: Counted) -> Result<(), NoRoom> {
        let own = &mut self.pools[block.pool as usize];
        if own.room.counts.split.lacks(block.split) || self.all.counts.split.lacks(block.split) {
            return Err(NoRoom);
        }
        own.room.counts.split = own.room.counts.split - block.split;
        self.all.counts.split = self.all.counts.split - block.split;
        own.added.split = own.added.split + block.split.increase();
        self.has_changed = true;
        Ok(())
    }

    /// What there is of each quantity.
    pub(super) fn current(&self, pool: PoolKind) -> Amounts {
        let own = &self.pools[pool as usize];
        own.bound - own.room.amounts()
    }

    /// The sum of all that was ever added of each quantity.
    pub(super) fn added(&self, pool: PoolKind) -> Amounts {
        Room { counts: self.pools[pool as usize].added, ..Room::default() }.amounts()
    }

    /// What there is of each quantity and what may be added: its part of the peak.
    pub(super) fn bound(&self, pool: PoolKind) -> Amounts {
        self.pools[pool as usize].bound
    }

    /// What may be added.
    pub(super) fn room(&self) -> Share {
        Share { pools: [0, 1].map(|pool| self.pools[pool].room.amounts()), all: self.all.amounts() }
    }

    /// Sets what may be added from now on.
    pub(super) fn set_room(&mut self, share: Share) {
        for (pool, amounts) in [PoolKind::Small, PoolKind::Large].into_iter().zip(share.pools) {
            let bound = self.current(pool) + amounts;
            let own = &mut self.pools[pool as usize];
            (own.bound, own.room) = (bound, Room::of(amounts));
        }
        self.all = Room::of(share.all);
    }

    /// Makes room for whatever may come, until [`set_bounds`](Self::set_bounds) has this again.
    pub(super) fn lift_bounds(&mut self) -> Bounds {
        let [small, large] = &mut self.pools;
        let rooms = [&mut small.room, &mut large.room, &mut self.all];
        Bounds(rooms.map(|room| std::mem::replace(&mut room.counts, Counts::BOUNDLESS)))
    }

    /// What was added meanwhile beyond the room that there was has moved the peaks.
    pub(super) fn set_bounds(&mut self, Bounds([small, large, all]): Bounds) {
        for (PoolAccount { room, bound, .. }, counts) in self.pools.iter_mut().zip([small, large]) {
            room.counts = counts - (Counts::BOUNDLESS - room.counts);
            *bound += room.cover();
        }
        self.all.counts = all - (Counts::BOUNDLESS - self.all.counts);
        self.all.cover();
    }

    /// Whether there is nothing, and nothing was given out since somebody last asked.
    pub(super) fn rests(&mut self) -> bool {
        let given_out = self.pools.iter().map(|pool| pool.added.blocks.0[0]).fold(0, i64::wrapping_add);
        let before = std::mem::replace(&mut self.given_out_before, given_out);
        let has_nothing = |pool| self.current(pool) == Amounts::default();
        given_out == before && has_nothing(PoolKind::Small) && has_nothing(PoolKind::Large)
    }
}

impl Room {
    fn of(amounts: Amounts) -> Self {
        let [allocated, allocated_bytes, active, active_bytes, requested, split, split_bytes, oversize] =
            amounts.0;
        let (requested, split) = (Pair::new(requested, oversize), Pair::new(split, split_bytes));
        let mut room = Self {
            counts: Counts { blocks: Pair::default(), requested, split },
            allocated_beyond: Pair::new(allocated, allocated_bytes),
            active_beyond: Pair::new(active, active_bytes),
        };
        room.level();
        room
    }

    fn amounts(&self) -> Amounts {
        let Counts { blocks, requested, split } = self.counts;
        let [allocated, allocated_bytes] = (blocks + self.allocated_beyond).0;
        let [active, active_bytes] = (blocks + self.active_beyond).0;
        let ([requested, oversize], [split, split_bytes]) = (requested.0, split.0);
        Amounts([allocated, allocated_bytes, active, active_bytes, requested, split, split_bytes, oversize])
    }

    /// Makes nothing of what is less. By how much more that is.
    fn cover(&mut self) -> Amounts {
        let missing = self.amounts().missing();
        if missing != Amounts::default() {
            *self = Self::of(self.amounts() + missing);
        }
        missing
    }

    /// Moves what may be added both to allocated and to active blocks to where the warm path looks.
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

impl Counts {
    /// More than any operation adds.
    const BOUNDLESS: Self = {
        let pair = Pair([i64::MAX / 4; 2]);
        Self { blocks: pair, requested: pair, split: pair }
    };

    /// Whether it has less than that of anything.
    #[inline(always)]
    fn lacks(&self, more: Self) -> bool {
        self.blocks.lacks(more.blocks) || self.requested.lacks(more.requested) || self.split.lacks(more.split)
    }
}

impl Add for Counts {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let (blocks, requested) = (self.blocks + other.blocks, self.requested + other.requested);
        Self { blocks, requested, split: self.split + other.split }
    }
}

impl Sub for Counts {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        let (blocks, requested) = (self.blocks - other.blocks, self.requested - other.requested);
        Self { blocks, requested, split: self.split - other.split }
    }
}

#[cfg(test)]
mod tests;
