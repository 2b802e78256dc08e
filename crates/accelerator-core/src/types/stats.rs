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
        self.allocated = 0;
        self.freed = 0;
    }

    pub(super) fn entries(&self) -> [(&'static str, i64); 4] {
        let Self { current, peak, allocated, freed } = *self;
        [("allocated", allocated), ("current", current), ("freed", freed), ("peak", peak)]
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

    fn stats_mut(&mut self) -> [&mut Stat; 3] {
        let Self { all, small_pool, large_pool } = self;
        [all, small_pool, large_pool]
    }

    fn entries(&self) -> [(&'static str, &Stat); 3] {
        let Self { all, small_pool, large_pool } = self;
        [("all", all), ("large_pool", large_pool), ("small_pool", small_pool)]
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
        let mut entries = Vec::with_capacity(128);
        for (name, pools) in self.pool_stats() {
            for (pool, stat) in pools.entries() {
                for (metric, value) in stat.entries() {
                    entries.push((format!("{name}.{pool}.{metric}"), value));
                }
            }
        }
        for (name, stat) in self.single_stats() {
            for (metric, value) in stat.entries() {
                entries.push((format!("{name}.{metric}"), value));
            }
        }
        entries.extend(self.counters().map(|(name, value)| (name.to_owned(), value)));
        entries.sort_unstable();
        entries
    }

    /// [`entries`](Self::entries) as a map, with `allocated.*` beside `allocation.*`: the documentation of
    /// `torch.accelerator.memory_stats` names the first, its code gives the second.
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        let mut map: BTreeMap<_, _> = self.entries().into_iter().collect();
        for (pool, stat) in self.allocation.entries() {
            for (metric, value) in stat.entries() {
                map.insert(format!("allocated.{pool}.{metric}"), value);
            }
        }
        map
    }

    pub(crate) fn reset_peak(&mut self) {
        self.each_stat(Stat::reset_peak);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.each_stat(Stat::reset_accumulated);
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
        self.num_oom_rejections = 0;
    }

    fn each_stat(&mut self, change: impl Fn(&mut Stat)) {
        let Self {
            allocation,
            segment,
            active,
            inactive_split,
            allocated_bytes,
            reserved_bytes,
            active_bytes,
            inactive_split_bytes,
            requested_bytes,
            oversize_allocations,
            oversize_segments,
            num_alloc_retries: _,
            num_ooms: _,
            num_sync_all_streams: _,
            num_device_alloc: _,
            num_device_free: _,
            num_oom_rejections: _,
            max_split_size: _,
            expandable_segments: _,
        } = self;
        for pools in [
            allocation,
            segment,
            active,
            inactive_split,
            allocated_bytes,
            reserved_bytes,
            active_bytes,
            inactive_split_bytes,
            requested_bytes,
        ] {
            pools.stats_mut().into_iter().for_each(&change);
        }
        change(oversize_allocations);
        change(oversize_segments);
    }

    /// What is counted by pool, under PyTorch's names.
    pub fn pool_stats(&self) -> [(&'static str, &PoolStat); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    fn single_stats(&self) -> [(&'static str, &Stat); 2] {
        [("oversize_allocations", &self.oversize_allocations), ("oversize_segments", &self.oversize_segments)]
    }

    fn counters(&self) -> [(&'static str, i64); 7] {
        [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
            ("max_split_size", self.max_split_size),
        ]
    }
}
