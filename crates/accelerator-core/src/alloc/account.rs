//! What one stream's blocks add to the statistics of the device, counted without touching anything shared.
//!
//! A peak is that of a sum over all streams, so it seems that whoever adds must see that sum. Escrow avoids it: each
//! account has *room*, so much as it may add before any peak of the device could move, and the room of all accounts together
//! is never more than what is missing to the peak. An operation that fits moves no peak, and nobody else need know. One that
//! does not fit is refused before anything has changed, and done again with all accounts at hand
//! (`CachingAllocator::settled`), which raises the peaks exactly and deals out room anew. So peaks are those of the sums in
//! the order of the operations, as if each had taken one lock.

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

    /// Sets what may be added from now on.
    pub(super) fn set_room(&mut self, share: Share) {
        for (pool, amounts) in [PoolKind::Small, PoolKind::Large].into_iter().zip(share.pools) {
            let bound = self.current(pool) + amounts;
            let own = &mut self.pools[pool as usize];
            (own.bound, own.room) = (bound, Room::of(amounts));
        }
        self.all = Room::of(share.all);
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
mod tests {
    use super::*;
    use crate::alloc::amounts::Quantity;

    const BLOCK: Counted = Counted {
        pool: PoolKind::Large,
        bytes: 4096,
        requested: 4000,
        oversize: true,
        split: Pair([1, 512]),
    };
    /// What one such block adds.
    const OF_BLOCK: Amounts = Amounts([1, 4096, 1, 4096, 4000, 1, 512, 1]);

    /// Room for exactly this in the large pool, and in both together.
    fn account(pool: Amounts, all: Amounts) -> Account {
        let mut account = Account::default();
        account.set_room(Share { pools: [Share::BOUNDLESS.all, pool], all });
        account
    }

    #[test]
    fn what_just_fits_is_counted() {
        let mut account = account(OF_BLOCK, OF_BLOCK);
        assert!(account.given_out(BLOCK).is_ok());
        assert_eq!(account.current(PoolKind::Large), OF_BLOCK);
        assert_eq!(account.added(PoolKind::Large), Amounts([1, 4096, 1, 4096, 4000, 1, 512, 1]));
        assert_eq!(account.current(PoolKind::Small), Amounts::default());
        assert_eq!(account.added(PoolKind::Small), Amounts::default());
    }

    #[test]
    fn what_lacks_one_of_anything_is_refused_and_changes_nothing() {
        for quantity in 0..8 {
            let mut less = OF_BLOCK;
            less.0[quantity] -= 1;
            for mut account in [account(less, OF_BLOCK), account(OF_BLOCK, less)] {
                let before = format!("{account:?}");
                assert!(account.given_out(BLOCK).is_err(), "room for all but {quantity}");
                assert_eq!(format!("{account:?}"), before);
            }
        }
    }

    #[test]
    fn a_free_that_splits_more_than_may_be_is_refused_and_changes_nothing() {
        let enough = OF_BLOCK + OF_BLOCK;
        for quantity in [Quantity::Split, Quantity::SplitBytes] {
            let mut less = enough;
            less.0[quantity as usize] -= 1;
            for (pool, all) in [(less, enough), (enough, less)] {
                let mut account = account(pool, all);
                account.given_out(BLOCK).unwrap();
                let before = format!("{account:?}");
                assert!(account.freed(BLOCK).is_err());
                assert_eq!(format!("{account:?}"), before);
                account.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
                let before = format!("{account:?}");
                assert!(account.pending_over(BLOCK).is_err());
                assert_eq!(format!("{account:?}"), before);
            }
        }
    }

    #[test]
    fn a_pending_block_makes_room_where_more_may_be_active_than_allocated() {
        let of_two = Amounts([1, 4096, 2, 8192, 8000, 2, 1024, 1]);
        let mut account = account(of_two, of_two);
        account.given_out(BLOCK).unwrap();
        assert!(account.given_out(BLOCK).is_err());
        account.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
        account.given_out(BLOCK).unwrap();
        assert_eq!(account.current(PoolKind::Large), of_two);
    }

    #[test]
    fn what_is_freed_may_be_given_out_again() {
        let mut account = account(OF_BLOCK, OF_BLOCK);
        let back = Counted { split: Pair([-1, -512]), ..BLOCK };
        for _ in 0..3 {
            account.given_out(BLOCK).unwrap();
            assert!(account.given_out(BLOCK).is_err());
            account.freed(back).unwrap();
            assert_eq!(account.current(PoolKind::Large), Amounts::default());
            account.given_out(BLOCK).unwrap();
            account.pending_begun(back.pool, back.bytes, back.oversize);
            let pending = Amounts([0, 0, 1, 4096, 4000, 1, 512, 0]);
            assert_eq!(account.current(PoolKind::Large), pending);
            // It may be allocated again, but is active still.
            assert!(account.given_out(BLOCK).is_err());
            account.pending_over(back).unwrap();
            assert_eq!(account.current(PoolKind::Large), Amounts::default());
        }
        assert_eq!(account.added(PoolKind::Large), Amounts(OF_BLOCK.0.map(|amount| 6 * amount)));
    }
}
