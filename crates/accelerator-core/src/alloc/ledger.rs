//! What a device's allocator has counted, and what it may still take.

use std::sync::{Mutex, MutexGuard};

use super::account::Account;
use super::amounts::{Amounts, Quantity, Share};
use super::config::AllocatorConfig;
use super::history::{HistoryContext, Recorder};
use super::policy::share;
use crate::sync::lock;
use crate::types::{PoolKind, PoolStat, Stat, Statistics};

/// Statistics and limit of one device, for all arenas.
///
/// A leaf among the locks: taken inside an arena's, never around one, and never across a driver call.
pub(super) struct Ledger(Mutex<Books>);

/// What the [`Ledger`] guards.
pub(super) struct Books {
    /// Peaks, segments and counters; what the accounts hold is as old as the last [`sum`](Self::sum).
    pub(super) statistics: Statistics,
    /// What the accounts held then.
    summed: Totals,
    /// What there was when the accumulated values were last reset.
    at_reset: Totals,
    /// Bytes taken from the driver, or being asked for.
    charged: u64,
    /// Bytes that may be taken; `None`: as many as there are.
    limit: Option<u64>,
    fraction: f64,
    segments_made: u64,
    /// The history, while somebody wants one.
    pub(super) recorder: Option<Box<Recorder>>,
}

/// What all accounts together hold of each pool, and what was ever added.
#[derive(Clone, Copy, Default, PartialEq)]
struct Totals {
    current: [Amounts; 2],
    added: [Amounts; 2],
}

impl Ledger {
    pub(super) fn new(config: &AllocatorConfig, total_memory: u64) -> Self {
        let max_split_size = i64::try_from(config.max_split_size).unwrap_or(-1);
        let mut books = Books {
            statistics: Statistics { max_split_size, ..Statistics::default() },
            summed: Totals::default(),
            at_reset: Totals::default(),
            charged: 0,
            limit: None,
            fraction: 1.0,
            segments_made: 0,
            recorder: None,
        };
        books.set_fraction(config.memory_fraction, total_memory);
        Self(Mutex::new(books))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Books> {
        lock(&self.0)
    }
}

impl Books {
    /// Brings the statistics up to date. `accounts`: all of the device.
    pub(super) fn sum<'a>(&mut self, accounts: impl Iterator<Item = &'a Account>) {
        let totals = Self::totals(accounts);
        if totals != self.summed {
            self.summed = totals;
            self.enter(&totals);
        }
    }

    /// Sets the accumulated values and the counters to 0.
    pub(super) fn reset_accumulated<'a>(&mut self, accounts: impl Iterator<Item = &'a Account>) {
        self.at_reset = Self::totals(accounts);
        self.statistics.reset_accumulated();
    }

    #[inline(always)]
    fn totals<'a>(accounts: impl Iterator<Item = &'a Account>) -> Totals {
        let mut totals = Totals::default();
        for account in accounts {
            for pool in [PoolKind::Small, PoolKind::Large] {
                totals.current[pool as usize] += account.current(pool);
                totals.added[pool as usize] += account.added(pool);
            }
        }
        totals
    }

    fn enter(&mut self, totals: &Totals) {
        let at_reset = &self.at_reset;
        // What there is, what was added since the last reset, and what went.
        let of_pool = |pool: PoolKind, quantity: Quantity| {
            let of = |amounts: &[Amounts; 2]| amounts[pool as usize][quantity];
            let added = of(&totals.added).wrapping_sub(of(&at_reset.added));
            let current = of(&totals.current);
            [current, added, added.wrapping_sub(current - of(&at_reset.current))]
        };
        let of_both = |[current, added, freed]: [i64; 3], large: [i64; 3]| {
            [current + large[0], added.wrapping_add(large[1]), freed.wrapping_add(large[2])]
        };
        let enter = |stat: &mut PoolStat, quantity: Quantity| {
            let (small, large) = (of_pool(PoolKind::Small, quantity), of_pool(PoolKind::Large, quantity));
            stat.small_pool.set(small);
            stat.large_pool.set(large);
            stat.all.set(of_both(small, large));
        };
        let statistics = &mut self.statistics;
        enter(&mut statistics.allocation, Quantity::Allocated);
        enter(&mut statistics.allocated_bytes, Quantity::AllocatedBytes);
        enter(&mut statistics.active, Quantity::Active);
        enter(&mut statistics.active_bytes, Quantity::ActiveBytes);
        enter(&mut statistics.requested_bytes, Quantity::Requested);
        enter(&mut statistics.inactive_split, Quantity::Split);
        enter(&mut statistics.inactive_split_bytes, Quantity::SplitBytes);
        let (small, large) =
            (of_pool(PoolKind::Small, Quantity::Oversize), of_pool(PoolKind::Large, Quantity::Oversize));
        statistics.oversize_allocations.set(of_both(small, large));
    }

    /// What may be added before a peak moves, by the last [`sum`](Self::sum).
    pub(super) fn room(&self) -> Share {
        let left = |stat: &Stat| stat.peak - stat.current;
        let statistics = &self.statistics;
        let of = |stat: fn(&PoolStat) -> &Stat| {
            Amounts([
                left(stat(&statistics.allocation)),
                left(stat(&statistics.allocated_bytes)),
                left(stat(&statistics.active)),
                left(stat(&statistics.active_bytes)),
                left(stat(&statistics.requested_bytes)),
                left(stat(&statistics.inactive_split)),
                left(stat(&statistics.inactive_split_bytes)),
                left(&statistics.oversize_allocations),
            ])
        };
        let pools = [of(|pools| &pools.small_pool), of(|pools| &pools.large_pool)];
        Share { pools, all: of(|pools| &pools.all) }
    }

    /// PyTorch: `setMemoryFraction`. 1 is no limit, rather than a limit of all the memory.
    pub(super) fn set_fraction(&mut self, fraction: f64, total_memory: u64) {
        self.fraction = fraction;
        self.limit = (fraction < 1.0).then(|| share(fraction, total_memory));
    }

    pub(super) fn fraction(&self) -> f64 {
        self.fraction
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// What the history has let go, to be dropped without a lock.
    pub(super) fn discarded(&mut self) -> Vec<HistoryContext> {
        self.recorder.as_mut().map(|recorder| recorder.discarded()).unwrap_or_default()
    }

    /// Sets `size` bytes aside for a driver allocation, if the limit allows them. Without a limit, what statistics can
    /// count is one.
    pub(super) fn charge(&mut self, size: u64) -> bool {
        let limit = self.limit.unwrap_or(i64::MAX as u64);
        let charged = self.charged.checked_add(size).filter(|charged| *charged <= limit);
        self.charged = charged.unwrap_or(self.charged);
        charged.is_some()
    }

    /// Takes back a charge whose driver allocation failed.
    pub(super) fn refund(&mut self, size: u64) {
        self.charged -= size;
    }

    /// A charged driver allocation succeeded: its number in the order of creation.
    pub(super) fn segment_made(&mut self, config: &AllocatorConfig, pool: PoolKind, size: u64) -> u64 {
        self.statistics.segment.update(pool, |stat| stat.increase(1));
        self.statistics.reserved_bytes.update(pool, |stat| stat.increase(size));
        self.statistics.num_device_alloc += 1;
        if config.is_oversize(size) {
            self.statistics.oversize_segments.increase(1);
        }
        self.segments_made += 1;
        self.segments_made - 1
    }

    pub(super) fn segment_released(&mut self, config: &AllocatorConfig, pool: PoolKind, size: u64) {
        self.refund(size);
        self.statistics.segment.update(pool, |stat| stat.decrease(1));
        self.statistics.reserved_bytes.update(pool, |stat| stat.decrease(size));
        self.statistics.num_device_free += 1;
        if config.is_oversize(size) {
            self.statistics.oversize_segments.decrease(1);
        }
    }
}

#[cfg(test)]
impl Books {
    /// What the statistics would be if somebody asked. Nothing changes: no peak is raised by it.
    pub(super) fn statistics_of<'a>(&mut self, accounts: impl Iterator<Item = &'a Account>) -> Statistics {
        let (statistics, summed) = (self.statistics, self.summed);
        self.sum(accounts);
        self.summed = summed;
        std::mem::replace(&mut self.statistics, statistics)
    }
}
