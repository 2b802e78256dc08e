use std::collections::BTreeMap;

/// One quantity over time. PyTorch: `c10::CachingAllocator::Stat`.
///
/// Signed, since PyTorch's counts of oversize blocks go below zero when `max_split_size_mb` is changed while
/// such blocks live, and ours equal them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The value now.
    pub current: i64,
    /// The highest value since the peaks were last reset.
    pub peak: i64,
    /// The sum of all increases since the accumulated values were last reset; beyond 2⁶³ it wraps, as in PyTorch.
    pub allocated: i64,
    /// The sum of all decreases since the accumulated values were last reset; it wraps too.
    pub freed: i64,
}

impl Stat {
    pub(crate) fn increase(&mut self, amount: u64) {
        let amount = amount as i64;
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    pub(crate) fn decrease(&mut self, amount: u64) {
        let amount = amount as i64;
        self.current -= amount;
        self.freed = self.freed.wrapping_add(amount);
    }

    /// Adds another quantity, peaks too: what the two reached together is not known.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { current, peak, allocated, freed } = other;
        self.current += current;
        self.peak += peak;
        self.allocated = self.allocated.wrapping_add(*allocated);
        self.freed = self.freed.wrapping_add(*freed);
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(crate) fn reset_accumulated(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }

    /// Its values under the name of the quantity.
    pub(super) fn entries(self, name: &str) -> [(String, i64); 4] {
        let Self { current, peak, allocated, freed } = self;
        [("allocated", allocated), ("current", current), ("freed", freed), ("peak", peak)]
            .map(|(metric, value)| (format!("{name}.{metric}"), value))
    }
}

/// Which of the two pools a request, block or segment belongs to.
///
/// Requests of up to 1 MiB (rounded) come from segments of 2 MiB, larger ones from larger segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// Requests of at most 1 MiB.
    Small,
    /// Requests over 1 MiB.
    Large,
}

impl PoolKind {
    /// PyTorch's word for it: `segment_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// One quantity for both pools together and for each alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// Both pools.
    pub all: Stat,
    /// The small pool.
    pub small_pool: Stat,
    /// The large pool.
    pub large_pool: Stat,
}

impl PoolStat {
    /// Applies one change to `all` and to the stat of `pool`.
    pub(crate) fn update(&mut self, pool: PoolKind, change: impl Fn(&mut Stat)) {
        change(&mut self.all);
        change(match pool {
            PoolKind::Small => &mut self.small_pool,
            PoolKind::Large => &mut self.large_pool,
        });
    }

    fn entries(self, name: &str) -> impl Iterator<Item = (String, i64)> {
        let Self { all, small_pool, large_pool } = self;
        [("all", all), ("large_pool", large_pool), ("small_pool", small_pool)]
            .into_iter()
            .flat_map(move |(pool, stat)| stat.entries(&format!("{name}.{pool}")))
    }
}

/// Everything that an allocator counts. PyTorch: `torch.accelerator.memory_stats`, C++ `DeviceStats`.
///
/// Byte counts are bytes, the others numbers of things. On the same calls from one thread every value equals
/// PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Allocations that live.
    pub allocation: PoolStat,
    /// Segments held from the driver, without expandable ones.
    pub segment: PoolStat,
    /// Blocks allocated, or freed and still in use by a stream.
    pub active: PoolStat,
    /// Free blocks that share their segment with others, so that it cannot go back to the driver; of segments that are not
    /// expandable.
    pub inactive_split: PoolStat,
    /// Bytes of the blocks that live, rounding included.
    pub allocated_bytes: PoolStat,
    /// Bytes held from the driver.
    pub reserved_bytes: PoolStat,
    /// Bytes of the active blocks.
    pub active_bytes: PoolStat,
    /// Bytes of the inactive split blocks.
    pub inactive_split_bytes: PoolStat,
    /// Bytes that were asked for, of the active blocks.
    pub requested_bytes: PoolStat,
    /// Allocations of `max_split_size_mb` or more.
    pub oversize_allocations: Stat,
    /// Segments of `max_split_size_mb` or more.
    pub oversize_segments: Stat,
    /// Requests that asked the driver once more after the cache had been released.
    pub num_alloc_retries: i64,
    /// Requests that failed for lack of memory.
    pub num_ooms: i64,
    /// Times that all pending events were waited for.
    pub num_sync_all_streams: i64,
    /// Segments asked from the driver and got; ranges mapped into expandable segments.
    pub num_device_alloc: i64,
    /// Segments given back to the driver; ranges unmapped.
    pub num_device_free: i64,
    /// Requests refused ahead of the driver call (`throw_on_cudamalloc_oom`).
    pub num_oom_rejections: i64,
    /// `max_split_size_mb` in bytes when the allocator was made; -1: unlimited.
    pub max_split_size: i64,
    /// Whether new memory comes from expandable segments: they are asked for, and the backend has virtual memory. Not among
    /// the [`entries`](Self::entries), as PyTorch has no such key.
    pub expandable_segments: bool,
}

impl Statistics {
    /// All values under PyTorch's keys, sorted: `allocated_bytes.all.current` and so on.
    pub fn entries(&self) -> Vec<(String, i64)> {
        let mut statistics = *self;
        let mut entries = Vec::with_capacity(128);
        for (name, pools) in statistics.pool_stats() {
            entries.extend(pools.entries(name));
        }
        for (name, stat) in statistics.oversize() {
            entries.extend(stat.entries(name));
        }
        entries.extend(statistics.counters().map(|(name, count)| (name.to_owned(), *count)));
        entries.push(("max_split_size".to_owned(), self.max_split_size));
        entries.sort_unstable();
        entries
    }

    /// [`entries`](Self::entries) as a map, with `allocated.*` beside `allocation.*`: the documentation of
    /// `torch.accelerator.memory_stats` names the first, its code gives the second.
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        self.entries().into_iter().chain(self.allocation.entries("allocated")).collect()
    }

    pub(crate) fn reset_peak(&mut self) {
        self.each_stat(Stat::reset_peak);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.each_stat(Stat::reset_accumulated);
        self.counters().into_iter().for_each(|(_, count)| *count = 0);
    }

    fn each_stat(&mut self, change: fn(&mut Stat)) {
        for (_, PoolStat { all, small_pool, large_pool }) in self.by_pool() {
            [all, small_pool, large_pool].into_iter().for_each(change);
        }
        self.oversize().into_iter().for_each(|(_, stat)| change(stat));
    }

    /// What is counted by pool, under PyTorch's names.
    pub fn pool_stats(&self) -> [(&'static str, PoolStat); 9] {
        let mut statistics = *self;
        statistics.by_pool().map(|(name, pools)| (name, *pools))
    }

    fn by_pool(&mut self) -> [(&'static str, &mut PoolStat); 9] {
        [
            ("allocation", &mut self.allocation),
            ("segment", &mut self.segment),
            ("active", &mut self.active),
            ("inactive_split", &mut self.inactive_split),
            ("allocated_bytes", &mut self.allocated_bytes),
            ("reserved_bytes", &mut self.reserved_bytes),
            ("active_bytes", &mut self.active_bytes),
            ("inactive_split_bytes", &mut self.inactive_split_bytes),
            ("requested_bytes", &mut self.requested_bytes),
        ]
    }

    /// What is counted for both pools at once.
    fn oversize(&mut self) -> [(&'static str, &mut Stat); 2] {
        [
            ("oversize_allocations", &mut self.oversize_allocations),
            ("oversize_segments", &mut self.oversize_segments),
        ]
    }

    fn counters(&mut self) -> [(&'static str, &mut i64); 6] {
        [
            ("num_alloc_retries", &mut self.num_alloc_retries),
            ("num_ooms", &mut self.num_ooms),
            ("num_sync_all_streams", &mut self.num_sync_all_streams),
            ("num_device_alloc", &mut self.num_device_alloc),
            ("num_device_free", &mut self.num_device_free),
            ("num_oom_rejections", &mut self.num_oom_rejections),
        ]
    }
}
