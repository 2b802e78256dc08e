use std::collections::BTreeMap;

/// One quantity over time. PyTorch: `c10::CachingAllocator::Stat`.
///
/// The values are signed, since PyTorch's counts of oversize blocks fall below zero when `max_split_size_mb` is changed
/// while such blocks are live, and these equal PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: i64,
    /// The highest value since the peaks were last reset.
    pub peak: i64,
    /// The sum of all increases since the accumulated values were last reset. It wraps beyond 2⁶³, as in PyTorch.
    pub allocated: i64,
    /// The sum of all decreases since the accumulated values were last reset. It wraps, too.
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

    /// Adds another quantity, including its peak, since the peak of the sum is unknown.
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

    /// The values, named after the quantity.
    pub(super) fn entries(self, name: &str) -> [(String, i64); 4] {
        let Self { current, peak, allocated, freed } = self;
        [("allocated", allocated), ("current", current), ("freed", freed), ("peak", peak)]
            .map(|(metric, value)| (format!("{name}.{metric}"), value))
    }
}

/// Which of the two pools a request, block or segment belongs to.
///
/// Rounded requests of up to 1 MiB come from segments of 2 MiB, larger ones from larger segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// Requests of at most 1 MiB.
    Small,
    /// Requests over 1 MiB.
    Large,
}

impl PoolKind {
    /// PyTorch's name of the pool: `segment_type`.
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

    pub(crate) fn reset_peak(&mut self) {
        self.each(Stat::reset_peak);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.each(Stat::reset_accumulated);
    }

    fn each(&mut self, change: fn(&mut Stat)) {
        [&mut self.all, &mut self.small_pool, &mut self.large_pool].into_iter().for_each(change);
    }

    /// The values under PyTorch's keys for this quantity, such as `NAME.all.current`.
    pub fn entries(self, name: &str) -> impl Iterator<Item = (String, i64)> {
        let Self { all, small_pool, large_pool } = self;
        [("all", all), ("large_pool", large_pool), ("small_pool", small_pool)]
            .into_iter()
            .flat_map(move |(pool, stat)| stat.entries(&format!("{name}.{pool}")))
    }
}

/// The statistics of an allocator. PyTorch: `torch.accelerator.memory_stats`, C++ `DeviceStats`.
///
/// Values named `…bytes` and `max_split_size` are in bytes; the others are counts. For the same calls from one thread,
/// every value equals PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Live allocations.
    pub allocation: PoolStat,
    /// Segments held from the driver, except expandable ones.
    pub segment: PoolStat,
    /// Blocks that are allocated, or freed and still in use by a stream.
    pub active: PoolStat,
    /// Free blocks of segments that have other blocks, too, and so cannot return to the driver. Expandable segments do
    /// not count.
    pub inactive_split: PoolStat,
    /// Bytes of live blocks, including rounding.
    pub allocated_bytes: PoolStat,
    /// Bytes held from the driver.
    pub reserved_bytes: PoolStat,
    /// Bytes of the active blocks.
    pub active_bytes: PoolStat,
    /// Bytes of the inactive split blocks.
    pub inactive_split_bytes: PoolStat,
    /// Bytes that were requested for the active blocks.
    pub requested_bytes: PoolStat,
    /// Allocations of `max_split_size_mb` or more.
    pub oversize_allocations: Stat,
    /// Segments of `max_split_size_mb` or more.
    pub oversize_segments: Stat,
    /// Requests for which the driver was asked again after the cache had been released.
    pub num_alloc_retries: i64,
    /// Requests that ran out of memory.
    pub num_ooms: i64,
    /// How often all pending events were waited for.
    pub num_sync_all_streams: i64,
    /// Segments allocated from the driver, and ranges mapped into expandable segments.
    pub num_device_alloc: i64,
    /// Segments returned to the driver, and ranges unmapped.
    pub num_device_free: i64,
    /// Requests rejected before the driver was called (`throw_on_cudamalloc_oom`).
    pub num_oom_rejections: i64,
    /// `max_split_size_mb` in bytes when the allocator was made; -1 if unlimited.
    pub max_split_size: i64,
    /// Bytes of `reserved_bytes` that are back with the driver while their pool is paused. They are in
    /// [`to_map`](Self::to_map), but not among the [`entries`](Self::entries), since PyTorch has no such key.
    pub paused_bytes: i64,
    /// Whether new memory comes from expandable segments: the settings ask for them, and the backend supports virtual
    /// memory. It is not among the [`entries`](Self::entries), since PyTorch has no such key.
    pub expandable_segments: bool,
}

impl Statistics {
    /// All values under PyTorch's keys, such as `allocated_bytes.all.current`, sorted by key.
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

    /// [`entries`](Self::entries) as a map, with `paused_bytes`, and with `allocated.*` in addition to `allocation.*`:
    /// the documentation of `torch.accelerator.memory_stats` names the former, its code returns the latter.
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        let paused = ("paused_bytes".to_owned(), self.paused_bytes);
        self.entries().into_iter().chain(self.allocation.entries("allocated")).chain([paused]).collect()
    }

    pub(crate) fn reset_peak(&mut self) {
        self.each_stat(Stat::reset_peak);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.each_stat(Stat::reset_accumulated);
        self.counters().into_iter().for_each(|(_, count)| *count = 0);
    }

    fn each_stat(&mut self, change: fn(&mut Stat)) {
        self.by_pool().into_iter().for_each(|(_, stat)| stat.each(change));
        self.oversize().into_iter().for_each(|(_, stat)| change(stat));
    }

    /// The statistics that are counted by pool, under PyTorch's names.
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

    /// The statistics that are not counted by pool.
    fn oversize(&mut self) -> [(&'static str, &mut Stat); 2] {
        [("oversize_allocations", &mut self.oversize_allocations), ("oversize_segments", &mut self.oversize_segments)]
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
