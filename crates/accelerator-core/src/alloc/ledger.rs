//! What a device's allocator has counted, and what it may still take.

use std::sync::{Mutex, MutexGuard};

use super::config::AllocatorConfig;
use super::history::{HistoryContext, Recorder};
use super::policy::{Request, share};
use crate::sync::lock;
use crate::types::{PoolKind, Statistics};

/// Statistics and limit of one device, for all arenas.
///
/// A leaf among the locks: taken inside an arena's, never around one, and never across a driver call.
pub(super) struct Ledger(Mutex<Books>);

/// What the [`Ledger`] guards.
pub(super) struct Books {
    pub(super) statistics: Statistics,
    /// Bytes taken from the driver, or being asked for.
    charged: u64,
    /// Bytes that may be taken; `None`: as many as there are.
    limit: Option<u64>,
    fraction: f64,
    segments_made: u64,
    /// The history, while somebody wants one.
    pub(super) recorder: Option<Box<Recorder>>,
}

impl Ledger {
    pub(super) fn new(config: &AllocatorConfig, total_memory: u64) -> Self {
        let max_split_size = i64::try_from(config.max_split_size).unwrap_or(-1);
        let statistics = Statistics { max_split_size, ..Statistics::default() };
        let mut books =
            Books { statistics, charged: 0, limit: None, fraction: 1.0, segments_made: 0, recorder: None };
        books.set_fraction(config.memory_fraction, total_memory);
        Self(Mutex::new(books))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Books> {
        lock(&self.0)
    }
}

impl Books {
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

    /// A block of `size` bytes was given out.
    pub(super) fn allocated(&mut self, config: &AllocatorConfig, request: &Request, size: u64) {
        let statistics = &mut self.statistics;
        statistics.allocation.update(request.pool, |stat| stat.increase(1));
        statistics.allocated_bytes.update(request.pool, |stat| stat.increase(size));
        statistics.active.update(request.pool, |stat| stat.increase(1));
        statistics.active_bytes.update(request.pool, |stat| stat.increase(size));
        statistics.requested_bytes.update(request.pool, |stat| stat.increase(request.requested));
        if config.is_oversize(size) {
            statistics.oversize_allocations.increase(1);
        }
    }

    /// A block was freed by its user; it stays active until [`deactivated`](Self::deactivated).
    pub(super) fn free_requested(&mut self, config: &AllocatorConfig, pool: PoolKind, size: u64) {
        self.statistics.allocation.update(pool, |stat| stat.decrease(1));
        self.statistics.allocated_bytes.update(pool, |stat| stat.decrease(size));
        if config.is_oversize(size) {
            self.statistics.oversize_allocations.decrease(1);
        }
    }

    /// A freed block is no longer used by any stream.
    pub(super) fn deactivated(&mut self, pool: PoolKind, size: u64, requested: u64) {
        self.statistics.active.update(pool, |stat| stat.decrease(1));
        self.statistics.active_bytes.update(pool, |stat| stat.decrease(size));
        self.statistics.requested_bytes.update(pool, |stat| stat.decrease(requested));
    }

    /// The free blocks that share a segment changed by this much.
    pub(super) fn inactive_split_changed(&mut self, pool: PoolKind, blocks: i64, bytes: i64) {
        self.statistics.inactive_split.update(pool, |stat| stat.change(blocks));
        self.statistics.inactive_split_bytes.update(pool, |stat| stat.change(bytes));
    }
}
