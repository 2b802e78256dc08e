//! What a device's allocator has counted, and what it may still take.

use super::amounts::{Amounts, PoolAmounts};
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
    /// What was ever added by streams that are idle.
    idle: PoolAmounts,
    /// What there was when the accumulated values were last reset.
    at_reset: Sums,
    /// Bytes taken from the driver, or being asked for.
    pub(crate) charged: u64,
    /// Bytes that may be taken; `None`: as many as there are.
    pub(crate) limit: Option<u64>,
    pub(crate) fraction: f64,
    segments_made: u64,
    /// The history, while somebody wants one.
    pub(crate) recorder: Option<Box<Recorder>>,
}

/// What all streams together hold now and held at most, and what was ever added.
#[derive(Default)]
struct Sums {
    current: PoolAmounts,
    peak: PoolAmounts,
    added: PoolAmounts,
}

impl DeviceStatistics {
    pub(crate) fn new(config: &AllocatorConfig, total_memory: u64) -> Self {
        let max_split_size = i64::try_from(config.max_split_size).unwrap_or(-1);
        let expandable_segments = config.expandable_segments;
        let mut statistics = Self {
            totals: Statistics { max_split_size, expandable_segments, ..Statistics::default() },
            idle: PoolAmounts::default(),
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
    pub(crate) fn sum<'a>(&mut self, streams: impl Iterator<Item = &'a StreamCounters>) {
        let Sums { current, peak, added } = self.sums(streams);
        // Since the last reset.
        let allocated = added - self.at_reset.added;
        let freed = allocated - (current - self.at_reset.current);
        let sums = [current, peak, allocated, freed];
        let stats = |of: fn(&Amounts) -> i64| {
            let stat = |[current, peak, allocated, freed]: [i64; 4]| Stat { current, peak, allocated, freed };
            PoolStat {
                all: stat(sums.each_ref().map(|sum| of(&sum.all))),
                small_pool: stat(sums.each_ref().map(|sum| of(&sum.small))),
                large_pool: stat(sums.each_ref().map(|sum| of(&sum.large))),
            }
        };
        let totals = &mut self.totals;
        totals.allocation = stats(|amounts| amounts.allocated.0[0]);
        totals.allocated_bytes = stats(|amounts| amounts.allocated.0[1]);
        totals.active = stats(|amounts| amounts.active.0[0]);
        totals.active_bytes = stats(|amounts| amounts.active.0[1]);
        totals.requested_bytes = stats(|amounts| amounts.requested.0[0]);
        totals.oversize_allocations = stats(|amounts| amounts.requested.0[1]).all;
        totals.inactive_split = stats(|amounts| amounts.split.0[0]);
        totals.inactive_split_bytes = stats(|amounts| amounts.split.0[1]);
    }

    /// Sets the accumulated values and the counters to 0.
    pub(crate) fn reset_accumulated<'a>(&mut self, streams: impl Iterator<Item = &'a StreamCounters>) {
        self.at_reset = self.sums(streams);
        self.totals.reset_accumulated();
    }

    /// A stream becomes idle, which has nothing: what it ever added is kept here.
    pub(crate) fn make_idle(&mut self, counters: &mut StreamCounters) {
        self.idle = self.idle + counters.added();
        *counters = StreamCounters::default();
    }

    fn sums<'a>(&self, streams: impl Iterator<Item = &'a StreamCounters>) -> Sums {
        let none = Sums { added: self.idle, ..Sums::default() };
        streams.fold(none, |Sums { current, peak, added }, counters| Sums {
            current: current + counters.current(),
            peak: peak + counters.bound(),
            added: added + counters.added(),
        })
    }

    /// PyTorch: `setMemoryFraction`. 1 is no limit, rather than a limit of all the memory.
    pub(crate) fn set_fraction(&mut self, fraction: f64, total_memory: u64) {
        self.fraction = fraction;
        self.limit = (fraction < 1.0).then(|| share(fraction, total_memory));
    }

    /// Tells the history, if one is kept, of what concerns neither a block nor a segment.
    pub(crate) fn note(&mut self, action: impl FnOnce() -> HistoryAction) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(action());
        }
    }

    /// What the history has let go, to be dropped without a lock.
    pub(crate) fn discarded(&mut self) -> Vec<HistoryContext> {
        self.recorder.as_mut().map(|recorder| std::mem::take(&mut recorder.discarded)).unwrap_or_default()
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
        self.reserved(pool, size);
        self.totals.segment.update(pool, |stat| stat.increase(1));
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

    pub(crate) fn segment_released(&mut self, config: &AllocatorConfig, pool: PoolKind, size: u64) {
        self.pages_unmapped(pool, size);
        self.totals.segment.update(pool, |stat| stat.decrease(1));
        if config.is_oversize(size) {
            self.totals.oversize_segments.decrease(1);
        }
    }

    /// Pages were mapped, of which so many bytes were charged before. PyTorch counts neither these as segments nor them as oversize.
    pub(crate) fn pages_mapped(&mut self, pool: PoolKind, size: u64, charged: u64) {
        self.charged += size - charged;
        self.reserved(pool, size);
    }

    pub(crate) fn pages_unmapped(&mut self, pool: PoolKind, size: u64) {
        self.refund(size);
        self.totals.reserved_bytes.update(pool, |stat| stat.decrease(size));
        self.totals.num_device_free += i64::from(size > 0);
    }

    fn reserved(&mut self, pool: PoolKind, size: u64) {
        self.totals.reserved_bytes.update(pool, |stat| stat.increase(size));
        self.totals.num_device_alloc += 1;
    }
}
