//! The statistics of a device's allocator, and the limit that it must keep to.

use std::collections::BTreeMap;

use super::amounts::{Amounts, PoolAmounts};
use super::counters::StreamCounters;
use crate::alloc::history::{HistoryAction, HistoryContext, Recorder};
use crate::alloc::settings::{AllocatorConfig, share};
use crate::types::{MemPoolId, PoolKind, PoolStat, Stat, Statistics};

/// The statistics, limit and history of one device, for all streams.
///
/// Its lock is a leaf: it may be taken inside a stream's lock, never the other way round, and is not held across driver
/// calls.
pub(crate) struct DeviceStatistics {
    /// Segments and events. The values that streams count date from the last [`sum`](Self::sum).
    pub(crate) totals: Statistics,
    /// The sums of everything ever added by streams that are now idle.
    idle: PoolAmounts,
    /// The values at the last reset of the accumulated values.
    at_reset: Sums,
    /// Bytes taken from the driver or currently being requested.
    pub(crate) charged: u64,
    /// The limit on charged bytes; `None` if the only limit is the device.
    pub(crate) limit: Option<u64>,
    pub(crate) fraction: f64,
    segments_made: u64,
    /// What each private pool has held from the driver. A pool stays here when it is gone.
    private: BTreeMap<MemPoolId, PrivatePool>,
    /// The recorder, while recording is on.
    pub(crate) recorder: Option<Box<Recorder>>,
}

/// What a private pool has held from the driver.
#[derive(Default)]
struct PrivatePool {
    reserved: PoolStat,
    /// How many more times the pool took memory than gave some back. PyTorch: `cudaMalloc_count`.
    calls: i64,
}

/// The private pool that holds memory, and for requests of which size.
pub(crate) type Holder = (MemPoolId, PoolKind);

/// Current values, peaks and everything ever added, over all streams.
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
            private: BTreeMap::new(),
            recorder: None,
        };
        statistics.set_fraction(config.memory_fraction, total_memory);
        statistics
    }

    /// Updates the totals. `streams`: the counters of all active streams.
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

    /// Resets the accumulated values and the event counters to 0.
    pub(crate) fn reset_accumulated<'a>(&mut self, streams: impl Iterator<Item = &'a StreamCounters>) {
        self.at_reset = self.sums(streams);
        self.totals.reset_accumulated();
        self.private.values_mut().for_each(|pool| pool.reserved.reset_accumulated());
    }

    /// Resets the peaks of what is counted here.
    pub(crate) fn reset_peak(&mut self) {
        self.totals.reset_peak();
        self.private.values_mut().for_each(|pool| pool.reserved.reset_peak());
    }

    /// Makes the counters of a stream idle. The current values must be 0. Everything that the stream ever added is kept
    /// here.
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

    /// Sets the memory fraction; 1 means no limit, rather than a limit of all memory. PyTorch: `setMemoryFraction`.
    pub(crate) fn set_fraction(&mut self, fraction: f64, total_memory: u64) {
        self.fraction = fraction;
        self.limit = (fraction < 1.0).then(|| share(fraction, total_memory));
    }

    /// Records an event that concerns neither a block nor a segment, while recording is on.
    pub(crate) fn note(&mut self, action: impl FnOnce() -> HistoryAction) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(action());
        }
    }

    /// Returns the contexts that the recorder has discarded, to be dropped without a lock held.
    pub(crate) fn discarded(&mut self) -> Vec<HistoryContext> {
        self.recorder.as_mut().map(|recorder| std::mem::take(&mut recorder.discarded)).unwrap_or_default()
    }

    /// Charges `size` bytes for a driver allocation, if the limit allows. Without a limit, the range of the statistics
    /// is the limit.
    pub(crate) fn charge(&mut self, size: u64) -> bool {
        let limit = self.limit.unwrap_or(i64::MAX as u64);
        let charged = self.charged.checked_add(size).filter(|charged| *charged <= limit);
        self.charged = charged.unwrap_or(self.charged);
        charged.is_some()
    }

    /// Takes back a charge after the driver allocation failed.
    pub(crate) fn refund(&mut self, size: u64) {
        self.charged -= size;
    }

    /// Counts a charged driver allocation that succeeded. Returns the segment's number in the order of creation.
    pub(crate) fn segment_made(&mut self, config: &AllocatorConfig, (of, pool): Holder, size: u64) -> u64 {
        self.reserved((of, pool), size);
        self.totals.segment.update(pool, |stat| stat.increase(1));
        if config.is_oversize(size) {
            self.totals.oversize_segments.increase(1);
        }
        self.segment_numbered()
    }

    /// Returns the number of a new segment in the order of creation.
    pub(crate) fn segment_numbered(&mut self) -> u64 {
        self.segments_made += 1;
        self.segments_made - 1
    }

    pub(crate) fn segment_released(&mut self, config: &AllocatorConfig, (of, pool): Holder, size: u64) {
        self.pages_unmapped((of, pool), size);
        self.totals.segment.update(pool, |stat| stat.decrease(1));
        if config.is_oversize(size) {
            self.totals.oversize_segments.decrease(1);
        }
    }

    /// Counts mapped pages, of which `charged` bytes were charged in advance. As in PyTorch, they count neither as
    /// segments nor as oversize.
    pub(crate) fn pages_mapped(&mut self, holder: Holder, size: u64, charged: u64) {
        self.charged += size - charged;
        self.reserved(holder, size);
    }

    pub(crate) fn pages_unmapped(&mut self, (of, pool): Holder, size: u64) {
        self.refund(size);
        self.totals.reserved_bytes.update(pool, |stat| stat.decrease(size));
        let calls = i64::from(size > 0);
        if !of.is_default() {
            let private = self.private.entry(of).or_default();
            private.reserved.update(pool, |stat| stat.decrease(size));
            private.calls -= calls;
        }
        self.totals.num_device_free += calls;
    }

    /// Counts bytes that stay reserved, but went back to the driver for now.
    pub(crate) fn paused(&mut self, size: u64) {
        self.refund(size);
        self.totals.paused_bytes += size as i64;
    }

    /// Counts charged bytes that came back.
    pub(crate) fn resumed(&mut self, size: u64) {
        self.totals.paused_bytes -= size as i64;
    }

    /// Counts paused bytes as if they had come back, because they are about to be given up.
    pub(crate) fn resumed_to_leave(&mut self, size: u64) {
        self.charged += size;
        self.resumed(size);
    }

    /// Counts the driver allocation of an alias range, which has no memory of its own.
    pub(crate) fn alias_mapped(&mut self) {
        self.totals.num_device_alloc += 1;
    }

    pub(crate) fn alias_unmapped(&mut self) {
        self.totals.num_device_free += 1;
    }

    /// Counts another attempt after everything free was given back.
    pub(crate) fn retried(&mut self) {
        self.totals.num_alloc_retries += 1;
    }

    /// Counts a wait for all streams.
    pub(crate) fn streams_awaited(&mut self) {
        self.totals.num_sync_all_streams += 1;
    }

    /// Counts a request that failed for lack of memory, or was rejected before the driver was called.
    pub(crate) fn out_of_memory(&mut self, is_rejected: bool) {
        self.totals.num_oom_rejections += i64::from(is_rejected);
        self.totals.num_ooms += i64::from(!is_rejected);
    }

    fn reserved(&mut self, (of, pool): Holder, size: u64) {
        self.totals.reserved_bytes.update(pool, |stat| stat.increase(size));
        if !of.is_default() {
            let private = self.private.entry(of).or_default();
            private.reserved.update(pool, |stat| stat.increase(size));
            private.calls += 1;
        }
        self.totals.num_device_alloc += 1;
    }

    /// Returns the bytes that each private pool has held from the driver.
    pub(crate) fn reserved_by_private_pools(&self) -> BTreeMap<MemPoolId, PoolStat> {
        self.private.iter().map(|(id, pool)| (*id, pool.reserved)).collect()
    }

    /// Counts a wait for the streams of a released pool without memory if PyTorch has not forgotten it. PyTorch keeps a
    /// pool whose calls do not add up, because adjacent pages that were mapped one after another were unmapped at once.
    pub(crate) fn pool_awaited_in_vain(&mut self, pool: MemPoolId) {
        if self.private.get(&pool).is_some_and(|pool| pool.calls != 0) {
            self.streams_awaited();
        }
    }
}
