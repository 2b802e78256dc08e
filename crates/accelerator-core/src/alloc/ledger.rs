//! What a device's allocator has counted, and what it may still take.

use super::account::Account;
use super::amounts::{Amounts, Quantity};
use super::config::AllocatorConfig;
use super::history::{HistoryContext, Recorder};
use super::policy::share;
use crate::sync::{Guard, OwnedLock};
use crate::types::{PoolKind, PoolStat, Stat, Statistics};

/// Statistics and limit of one device, for all arenas.
///
/// A leaf among the locks: taken inside an arena's, never around one, and never across a driver call.
pub(super) struct Ledger(OwnedLock<Books>);

/// What the [`Ledger`] guards.
pub(super) struct Books {
    /// Segments and counters; what the accounts hold is as old as the last [`sum`](Self::sum).
    pub(super) statistics: Statistics,
    /// What was ever added in accounts that sleep, of each pool.
    asleep: [Amounts; 2],
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
#[derive(Clone, Copy, Default)]
struct Totals {
    current: [Amounts; 2],
    added: [Amounts; 2],
}

/// What they held at most, of each pool, and of both together.
#[derive(Default)]
struct Peaks {
    pools: [Amounts; 2],
    both: Amounts,
}

impl Ledger {
    pub(super) fn new(config: &AllocatorConfig, total_memory: u64) -> Self {
        let max_split_size = i64::try_from(config.max_split_size).unwrap_or(-1);
        let expandable_segments = config.expandable_segments;
        let mut books = Books {
            statistics: Statistics { max_split_size, expandable_segments, ..Statistics::default() },
            asleep: Default::default(),
            at_reset: Totals::default(),
            charged: 0,
            limit: None,
            fraction: 1.0,
            segments_made: 0,
            recorder: None,
        };
        books.set_fraction(config.memory_fraction, total_memory);
        Self(OwnedLock::new(books))
    }

    pub(super) fn lock(&self) -> Guard<'_, Books> {
        self.0.lock_soon()
    }
}

impl Books {
    /// Brings the statistics up to date. `accounts`: all of the device that are awake.
    #[cold]
    pub(super) fn sum<'a>(&mut self, accounts: impl Iterator<Item = &'a Account> + Clone) {
        let (totals, peaks) = (self.totals(accounts.clone()), Self::peaks(accounts));
        self.enter(&totals, &peaks);
    }

    /// Sets the accumulated values and the counters to 0.
    pub(super) fn reset_accumulated<'a>(&mut self, accounts: impl Iterator<Item = &'a Account>) {
        self.at_reset = self.totals(accounts);
        self.statistics.reset_accumulated();
    }

    /// An account falls asleep, which has nothing: what it ever added is kept here.
    pub(super) fn put_to_sleep(&mut self, account: &mut Account) {
        for pool in [PoolKind::Small, PoolKind::Large] {
            self.asleep[pool as usize] += account.added(pool);
        }
        *account = Account::default();
    }

    fn totals<'a>(&self, accounts: impl Iterator<Item = &'a Account>) -> Totals {
        let mut totals = Totals { added: self.asleep, ..Totals::default() };
        for account in accounts {
            for pool in [PoolKind::Small, PoolKind::Large] {
                totals.current[pool as usize] += account.current(pool);
                totals.added[pool as usize] += account.added(pool);
            }
        }
        totals
    }

    fn peaks<'a>(accounts: impl Iterator<Item = &'a Account>) -> Peaks {
        let mut peaks = Peaks::default();
        for account in accounts {
            for pool in [PoolKind::Small, PoolKind::Large] {
                peaks.pools[pool as usize] += account.bound(pool);
                peaks.both += account.current(pool);
            }
            peaks.both += account.room().all;
        }
        peaks
    }

    fn enter(&mut self, totals: &Totals, peaks: &Peaks) {
        let at_reset = &self.at_reset;
        // What was added is since the last reset, and what went.
        let of_pool = |pool: PoolKind, quantity: Quantity| {
            let of = |amounts: &[Amounts; 2]| amounts[pool as usize][quantity];
            let allocated = of(&totals.added).wrapping_sub(of(&at_reset.added));
            let current = of(&totals.current);
            let freed = allocated.wrapping_sub(current - of(&at_reset.current));
            Stat { current, peak: of(&peaks.pools), allocated, freed }
        };
        let of_both = |small: Stat, large: Stat, quantity: Quantity| {
            let mut both = small;
            both.add(&large);
            Stat { peak: peaks.both[quantity], ..both }
        };
        let enter = |stat: &mut PoolStat, quantity: Quantity| {
            let (small, large) = (of_pool(PoolKind::Small, quantity), of_pool(PoolKind::Large, quantity));
            *stat = PoolStat { all: of_both(small, large, quantity), small_pool: small, large_pool: large };
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
        statistics.oversize_allocations = of_both(small, large, Quantity::Oversize);
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
        self.segment_numbered()
    }

    /// The number of a new segment in the order of creation.
    pub(super) fn segment_numbered(&mut self) -> u64 {
        self.segments_made += 1;
        self.segments_made - 1
    }

    /// Pages were mapped. PyTorch counts neither these as segments nor them as oversize.
    pub(super) fn pages_mapped(&mut self, pool: PoolKind, size: u64) {
        self.charged += size;
        self.statistics.reserved_bytes.update(pool, |stat| stat.increase(size));
        self.statistics.num_device_alloc += 1;
    }

    pub(super) fn pages_unmapped(&mut self, pool: PoolKind, size: u64) {
        self.refund(size);
        self.statistics.reserved_bytes.update(pool, |stat| stat.decrease(size));
        self.statistics.num_device_free += 1;
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
