use std::collections::BTreeMap;
use std::time::Duration;

use super::Stat;

/// How long some calls took, in microseconds. PyTorch: `c10::CachingAllocator::DurationStat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationStat {
    /// The sum since the accumulated values were last reset.
    pub total: i64,
    /// The longest call since the peaks were last reset.
    pub max: i64,
    /// The shortest call that took at least a microsecond, since the peaks were last reset.
    pub min: i64,
    /// The number of calls since the accumulated values were last reset.
    pub count: i64,
}

impl DurationStat {
    /// The average time of a call in microseconds, rounded down.
    pub fn average(&self) -> i64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    pub(crate) fn add(&mut self, took: Duration) {
        let took = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        self.total = self.total.saturating_add(took);
        self.count += 1;
        self.max = self.max.max(took);
        // As in PyTorch, 0 stands for "none yet".
        self.min = if self.min == 0 { took } else { self.min.min(took) };
    }

    fn reset_peak(&mut self) {
        (self.max, self.min) = (0, 0);
    }

    fn reset_accumulated(&mut self) {
        (self.total, self.count) = (0, 0);
    }

    fn entries(self, name: &str) -> [(String, i64); 5] {
        let Self { total, max, min, count } = self;
        [("avg", self.average()), ("count", count), ("max", max), ("min", min), ("total", total)]
            .map(|(metric, value)| (format!("{name}.{metric}"), value))
    }
}

/// The statistics of an allocator of pinned host memory. PyTorch: `torch.cuda.host_memory_stats`, C++ `HostStats`.
///
/// For the same calls from one thread, every value except the times equals PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Blocks held from the driver, in use or cached. Increases and decreases are driver calls.
    pub allocations: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
    /// Blocks that are allocated, or freed and still in use by a stream. The peak is the sum of the peaks of the size
    /// classes, which need not have occurred at the same time.
    pub active_requests: Stat,
    /// Their bytes, including rounding. The peak is computed like that of `active_requests`.
    pub active_bytes: Stat,
    /// The times of driver calls that allocated host memory.
    pub host_alloc_time: DurationStat,
    /// The times of driver calls that freed host memory.
    pub host_free_time: DurationStat,
}

impl HostStatistics {
    /// All values with their names in `torch.cuda.host_memory_stats`, sorted by name.
    pub fn entries(&self) -> Vec<(String, i64)> {
        let mut statistics = *self;
        let mut entries: Vec<_> = statistics.stats().into_iter().flat_map(|(name, stat)| stat.entries(name)).collect();
        entries.extend(statistics.times().into_iter().flat_map(|(name, time)| time.entries(name)));
        entries.push(("num_host_alloc".to_owned(), self.allocations.allocated));
        entries.push(("num_host_free".to_owned(), self.allocations.freed));
        entries
    }

    /// [`entries`](Self::entries) as a map.
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        self.entries().into_iter().collect()
    }

    pub(crate) fn reset_peak(&mut self) {
        self.stats().into_iter().for_each(|(_, stat)| stat.reset_peak());
        self.times().into_iter().for_each(|(_, time)| time.reset_peak());
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.stats().into_iter().for_each(|(_, stat)| stat.reset_accumulated());
        self.times().into_iter().for_each(|(_, time)| time.reset_accumulated());
    }

    /// Sorted by name.
    fn stats(&mut self) -> [(&'static str, &mut Stat); 4] {
        [
            ("active_bytes", &mut self.active_bytes),
            ("active_requests", &mut self.active_requests),
            ("allocated_bytes", &mut self.allocated_bytes),
            ("allocations", &mut self.allocations),
        ]
    }

    fn times(&mut self) -> [(&'static str, &mut DurationStat); 2] {
        [("host_alloc_time", &mut self.host_alloc_time), ("host_free_time", &mut self.host_free_time)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_as_pytorch_counts_them() {
        let mut time = DurationStat::default();
        for micros in [0, 7, 3, 12] {
            time.add(Duration::from_micros(micros));
        }
        assert_eq!(time, DurationStat { total: 22, max: 12, min: 3, count: 4 });
        assert_eq!(time.average(), 5);
        time.reset_peak();
        assert_eq!(time, DurationStat { total: 22, max: 0, min: 0, count: 4 });
        time.reset_accumulated();
        assert_eq!((time, time.average()), (DurationStat::default(), 0));
    }

    #[test]
    fn entries_are_sorted_and_have_the_names_of_pytorch() {
        let entries = HostStatistics::default().entries();
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(names.len(), 4 * 4 + 2 * 5 + 2);
        for name in ["active_bytes.peak", "allocations.freed", "host_alloc_time.avg", "num_host_free"] {
            assert!(names.contains(&name), "{name} is missing");
        }
    }
}
