//! What holds after each step.

use accelerator_core::{BlockState, DevicePtr, Error, PoolStat, SegmentSnapshot, Stat, Statistics};

use super::super::text::check_message;
use super::machine::Machine;

impl Machine {
    /// Accepts the error of a call, if the driver failed since it had failed `injected` times.
    pub(super) fn allow(&self, error: Option<Error>, injected: u64) {
        let Some(error) = error else { return };
        check_message(&error.to_string());
        assert!(self.driver().injected() > injected || self.capture.is_some(), "{error}");
    }

    /// As `allow`, for calls that refuse pools in some states.
    pub(super) fn allow_refusal(&self, error: Option<Error>, injected: u64) {
        match error {
            Some(Error::MemPool { .. }) => {}
            error => self.allow(error, injected),
        }
    }

    /// As `allow`, for calls that may run out of memory.
    pub(super) fn allow_no_memory(&self, error: Error, injected: u64) {
        self.has_failed.set(true);
        match error {
            Error::OutOfMemory(report) => check_message(&report.to_string()),
            error => self.allow(Some(error), injected),
        }
    }

    pub(super) fn check(&self) {
        let statistics = self.allocator().statistics();
        let sizes = self.blocks();
        let sum = sizes.iter().map(|(_, size)| size).sum::<u64>() as i64;
        assert_eq!(statistics.allocation.all.current, sizes.len() as i64);
        assert_eq!(statistics.allocated_bytes.all.current, sum);
        assert!(statistics.active_bytes.all.current >= sum);
        assert!(statistics.reserved_bytes.all.current >= statistics.active_bytes.all.current);
        assert!(self.driver().used() >= statistics.reserved_bytes.all.current as u64);
        self.check_counts(&statistics);
        assert_eq!(self.driver().misuses(), 0, "the driver was called in a way that it forbids");
        self.check_memory(sizes);
    }

    /// Checks that both pools add up, that no peak is below the present, and that what was added and taken away since
    /// the last reset makes the difference.
    fn check_counts(&self, statistics: &Statistics) {
        let (now, reset) = (*statistics, self.reset);
        for ((name, stat), (_, before)) in now.pool_stats().into_iter().zip(reset.pool_stats()) {
            let PoolStat { all, small_pool, large_pool } = stat;
            assert_eq!(all.current, small_pool.current + large_pool.current, "{name}");
            let difference = |stat: Stat| stat.allocated.wrapping_sub(stat.freed);
            assert!(all.peak >= all.current, "{name}");
            assert_eq!(difference(all), all.current - before.all.current, "{name}");
        }
    }

    /// Returns the addresses and sizes of everything that is allocated.
    fn blocks(&self) -> Vec<(u64, u64)> {
        let live = self.live.iter().map(|allocation| (allocation.ptr().trace_address(), allocation.size()));
        let raw = self.raw.iter().map(|raw| (raw.ptr.trace_address(), self.allocator().raw_size(raw.ptr).unwrap()));
        live.chain(raw).collect()
    }

    /// Checks that there is memory behind every allocation, and that no two have the same.
    fn check_memory(&self, blocks: Vec<(u64, u64)>) {
        let mut behind: Vec<_> = blocks
            .iter()
            .flat_map(|(address, size)| {
                let ranges = self.driver().inner().physical(*address, *size);
                ranges.unwrap_or_else(|| panic!("no memory at {address:#x}"))
            })
            .collect();
        behind.sort_unstable_by_key(|range| (range.memory, range.offset));
        for pair in behind.windows(2) {
            let is_apart = pair[0].memory != pair[1].memory || pair[0].offset + pair[0].len <= pair[1].offset;
            assert!(is_apart, "two allocations share memory: {pair:?}");
        }
    }

    /// Compares a snapshot with what is allocated.
    pub(super) fn check_snapshot(&self) {
        let snapshot = self.allocator().snapshot();
        let blocks = |segment: &SegmentSnapshot| {
            let sum: u64 = segment.blocks.iter().map(|block| block.size).sum();
            sum == segment.total_size
        };
        assert!(snapshot.segments.iter().all(blocks), "blocks do not make up their segment");
        let all = snapshot.segments.iter().chain(&snapshot.aliases).flat_map(|segment| &segment.blocks);
        let allocated = all.filter(|block| block.state == BlockState::Allocated);
        let mut seen: Vec<_> = allocated.map(|block| (block.address, block.size)).collect();
        let mut expected = self.blocks();
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }
}
