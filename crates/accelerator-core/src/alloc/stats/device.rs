//! What a device's allocator has counted, and what it may still take.

use super::amounts::{Amounts, Quantity};
use super::counters::StreamCounters;
use crate::alloc::history::{HistoryAction, HistoryContext, Recorder};
use crate::alloc::settings::{AllocatorConfig, share};
use crate::types::{PoolKind, PoolStat, Stat, Statistics};

/// Statistics, limit and history of one device, for all streams.
///
/// Its lock is a leaf: taken inside a stream's, never around one, and never across a driver call.
pub(crate) struct DeviceStatistics {
    /// Segments and events; what streams count is as old as the last [`sum`](Self::sum).
    pub(crate) totals: Statistics,
    /// What was ever added by streams that are idle, of each pool.
    idle: [Amounts; 2],
    /// What there was when the accumulated values were last reset.
    at_reset: Sums,
    /// Bytes taken from the driver, or being asked for.
    charged: u64,
    /// Bytes that may be taken; `None`: as many as there are.
    limit: Option<u64>,
    fraction: f64,
    segments_made: u64,
    /// The history, while somebody wants one.
    pub(crate) recorder: Option<Box<Recorder>>,
}

/// What all streams together hold of each pool, and what was ever added.
#[derive(Clone, Copy, Default)]
struct Sums {
    current: [Amounts; 2],
    added: [Amounts; 2],
}

/// What they held at most, of each pool, and of both together.
#[derive(Default)]
struct Peaks {
    pools: [Amounts; 2],
    both: Amounts,
}

impl DeviceStatistics {
    pub(crate) fn new(config: &AllocatorConfig, total_memory: u64) -> Self {
        let max_split_size = i64::try_from(config.max_split_size).unwrap_or(-1);
        let expandable_segments = config.expandable_segments;
        let mut statistics = Self {
            totals: Statistics { max_split_size, expandable_segments, ..Statistics::default() },
            idle: Default::default(),
            at_reset: Sums::default(),
            charged: 0,
            limit: None,
            fraction: 1.0,
            segments_made: 0,
            recorder: None,
        };
        statistics.set_fraction(config.memory_fraction, total_memory);
        statistics
    }

    /// Brings the totals up to date. `streams`: the counters of all that are active.
    #[cold]
    pub(crate) fn sum<'a>(&mut self, streams: impl Iterator<Item = &'a StreamCounters> + Clone) {
        let (sums, peaks) = (self.sums(streams.clone()), Self::peaks(streams));
        self.enter(&sums, &peaks);
    }

    /// Sets the accumulated values and the counters to 0.
    pub(crate) fn reset_accumulated<'a>(&mut self, streams: impl Iterator<Item = &'a StreamCounters>) {
        self.at_reset = self.sums(streams);
        self.totals.reset_accumulated();
    }

    /// A stream becomes idle, which has nothing: what it ever added is kept here.
    pub(crate) fn make_idle(&mut self, counters: &mut StreamCounters) {
        for pool in [PoolKind::Small, PoolKind::Large] {
            self.idle[pool as usize] += counters.added(pool);
        }
        *counters = StreamCounters::default();
    }

    fn sums<'a>(&self, streams: impl Iterator<Item = &'a StreamCounters>) -> Sums {
        let mut sums = Sums { added: self.idle, ..Sums::default() };
        for counters in streams {
            for pool in [PoolKind::Small, PoolKind::Large] {
                sums.current[pool as usize] += counters.current(pool);
                sums.added[pool as usize] += counters.added(pool);
            }
        }
        sums
    }

    fn peaks<'a>(streams: impl Iterator<Item = &'a StreamCounters>) -> Peaks {
        let mut peaks = Peaks::default();
        for counters in streams {
            for pool in [PoolKind::Small, PoolKind::Large] {
                peaks.pools[pool as usize] += counters.bound(pool);
                peaks.both += counters.current(pool);
            }
            peaks.both += counters.headroom().all;
        }
        peaks
    }

    fn enter(&mut self, sums: &Sums, peaks: &Peaks) {
        let at_reset = &self.at_reset;
        // What was added is since the last reset, and what went.
        let of_pool = |pool: PoolKind, quantity: Quantity| {
            let of = |amounts: &[Amounts; 2]| amounts[pool as usize][quantity];
            let allocated = of(&sums.added).wrapping_sub(of(&at_reset.added));
            let current = of(&sums.current);
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
        let totals = &mut self.totals;
        enter(&mut totals.allocation, Quantity::Allocated);
        enter(&mut totals.allocated_bytes, Quantity::AllocatedBytes);
        enter(&mut totals.active, Quantity::Active);
        enter(&mut totals.active_bytes, Quantity::ActiveBytes);
        enter(&mut totals.requested_bytes, Quantity::Requested);
        enter(&mut totals.inactive_split, Quantity::Split);
        enter(&mut totals.inactive_split_bytes, Quantity::SplitBytes);
        let (small, large) =
            (of_pool(PoolKind::Small, Quantity::Oversize), of_pool(PoolKind::Large, Quantity::Oversize));
        totals.oversize_allocations = of_both(small, large, Quantity::Oversize);
    }

    /// PyTorch: `setMemoryFraction`. 1 is no limit, rather than a limit of all the memory.
    pub(crate) fn set_fraction(&mut self, fraction: f64, total_memory: u64) {
        self.fraction = fraction;
        self.limit = (fraction < 1.0).then(|| share(fraction, total_memory));
    }

    pub(crate) fn fraction(&self) -> f64 {
        self.fraction
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// Tells the history, if one is kept, of what concerns neither a block nor a segment.
    pub(crate) fn note(&mut self, action: impl FnOnce() -> HistoryAction) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(action());
        }
    }

    /// What the history has let go, to be dropped without a lock.
    pub(crate) fn discarded(&mut self) -> Vec<HistoryContext> {
        self.recorder.as_mut().map(|recorder| recorder.discarded()).unwrap_or_default()
    }

    /// Sets `size` bytes aside for a driver allocation, if the limit allows them. Without a limit, what statistics can
    /// count is one.
    pub(crate) fn charge(&mut self, size: u64) -> bool {
        let limit = self.limit.unwrap_or(i64::MAX as u64);
        let charged = self.charged.checked_add(size).filter(|charged| *charged <= limit);
        self.charged = charged.unwrap_or(self.charged);
        charged.is_some()
    }

    /// Takes back a charge whose driver allocation failed.
    pub(crate) fn refund(&mut self, size: u64) {
        self.charged -= size;
    }

    /// A charged driver allocation succeeded: its number in the order of creation.
    pub(crate) fn segment_made(&mut self, config: &AllocatorConfig, pool: PoolKind, size: u64) -> u64 {
        self.totals.segment.update(pool, |stat| stat.increase(1));
        self.totals.reserved_bytes.update(pool, |stat| stat.increase(size));
        self.totals.num_device_alloc += 1;
        if config.is_oversize(size) {
            self.totals.oversize_segments.increase(1);
        }
        self.segment_numbered()
    }

    /// The number of a new segment in the order of creation.
    pub(crate) fn segment_numbered(&mut self) -> u64 {
        self.segments_made += 1;
        self.segments_made - 1
    }

    /// Pages were mapped, of which so many bytes were charged before. PyTorch counts neither these as segments nor them as oversize.
    pub(crate) fn pages_mapped(&mut self, pool: PoolKind, size: u64, charged: u64) {
        self.charged += size - charged;
        self.totals.reserved_bytes.update(pool, |stat| stat.increase(size));
        self.totals.num_device_alloc += 1;
    }

    pub(crate) fn pages_unmapped(&mut self, pool: PoolKind, size: u64) {
        self.refund(size);
        self.totals.reserved_bytes.update(pool, |stat| stat.decrease(size));
        self.totals.num_device_free += 1;
    }

    pub(crate) fn segment_released(&mut self, config: &AllocatorConfig, pool: PoolKind, size: u64) {
        self.refund(size);
        self.totals.segment.update(pool, |stat| stat.decrease(1));
        self.totals.reserved_bytes.update(pool, |stat| stat.decrease(size));
        self.totals.num_device_free += 1;
        if config.is_oversize(size) {
            self.totals.oversize_segments.decrease(1);
        }
    }
}
