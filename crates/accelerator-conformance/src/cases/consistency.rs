//! Invariants of statistics, snapshot and driver that hold at any moment.

use accelerator_core::{
    BlockSnapshot, BlockState, HostStatistics, Policy, PoolKind, PoolStat, SegmentSnapshot, Snapshot, Stat, Statistics,
};

use super::context::Device;
use crate::calls::Call;

/// Checks that statistics, snapshot and driver agree.
pub(super) fn check_consistency(device: Device) {
    let statistics = device.statistics();
    check_statistics(&statistics);
    let snapshot = device.allocator().snapshot();
    let policy = device.allocator().config().policy;
    snapshot.segments.iter().for_each(|segment| check_segment(segment, policy));
    check_aliases(&snapshot);
    for pool in [None, Some(PoolKind::Small), Some(PoolKind::Large)] {
        let of = |stat: &PoolStat| match pool {
            None => stat.all.current,
            Some(PoolKind::Small) => stat.small_pool.current,
            Some(PoolKind::Large) => stat.large_pool.current,
        };
        let is_of_pool = |segment: &&SegmentSnapshot| pool.is_none_or(|pool| segment.pool == pool);
        let segments = snapshot.segments.iter().filter(is_of_pool);
        let aliases = snapshot.aliases.iter().filter(is_of_pool);
        let mut sums = Sums::of(segments, aliases, policy);
        let counted = Sums {
            segments: of(&statistics.segment),
            reserved: of(&statistics.reserved_bytes),
            allocations: of(&statistics.allocation),
            allocated: of(&statistics.allocated_bytes),
            active_blocks: of(&statistics.active),
            active: of(&statistics.active_bytes),
            requested: of(&statistics.requested_bytes),
            inactive_split_blocks: of(&statistics.inactive_split),
            inactive_split: of(&statistics.inactive_split_bytes),
        };
        if policy == Policy::Compact && snapshot.segments.iter().any(|segment| !segment.mem_pool.is_default()) {
            // Some private pools follow PyTorch's policy all the same, and segments do not tell.
            sums.inactive_split_blocks = counted.inactive_split_blocks;
            sums.inactive_split = counted.inactive_split;
        }
        assert_eq!(counted, sums, "statistics and snapshot differ in pool {pool:?}");
    }
    let paused = snapshot.segments.iter().filter(|segment| segment.paused).map(|segment| segment.total_size).sum();
    assert_eq!(statistics.paused_bytes.unsigned_abs(), paused, "paused bytes and snapshot differ");
    let held = statistics.reserved_bytes.all.current.unsigned_abs() - paused;
    assert_eq!(held, device.backend().used(), "bytes that are reserved and not paused must be taken from the driver");
    if paused == 0 {
        check_host_statistics(device); // which do not count the contents of paused pools
    }
}

/// Checks that the statistics of pinned host memory and the driver agree.
fn check_host_statistics(device: Device) {
    let HostStatistics { allocations, allocated_bytes, active_requests, active_bytes, host_alloc_time, host_free_time } =
        device.host_statistics();
    let driver = (device.backend().live_host_allocations() as i64, device.backend().host_used() as i64);
    assert_eq!((allocations.current, allocated_bytes.current), driver, "pinned memory must equal the driver's count");
    for stat in [allocations, allocated_bytes, active_requests, active_bytes] {
        assert!(stat.current >= 0 && stat.peak >= stat.current, "{stat:?}");
    }
    assert!(active_requests.current <= allocations.current && active_bytes.current <= allocated_bytes.current);
    assert_eq!(host_alloc_time.count, allocations.allocated, "every allocation is timed");
    assert_eq!(host_free_time.count, allocations.freed, "every free is timed");
}

/// Checks the statistics alone; this also holds while other threads work.
pub(super) fn check_statistics(statistics: &Statistics) {
    for (name, PoolStat { all, small_pool, large_pool }) in statistics.pool_stats() {
        assert_eq!(all.current, small_pool.current + large_pool.current, "{name}.current: small + large = all");
        assert_eq!(all.allocated, small_pool.allocated + large_pool.allocated, "{name}.allocated: small + large");
        assert_eq!(all.freed, small_pool.freed + large_pool.freed, "{name}.freed: small + large = all");
        for (pool, stat) in [("all", all), ("small_pool", small_pool), ("large_pool", large_pool)] {
            assert!(stat.current >= 0 && stat.peak >= stat.current, "{name}.{pool}: {stat:?}");
        }
    }
    let pools: [fn(&PoolStat) -> Stat; 3] = [|stat| stat.all, |stat| stat.small_pool, |stat| stat.large_pool];
    for of in pools {
        let bytes = |stat: &PoolStat| of(stat).current;
        let (requested, allocated) = (bytes(&statistics.requested_bytes), bytes(&statistics.allocated_bytes));
        let (active, reserved) = (bytes(&statistics.active_bytes), bytes(&statistics.reserved_bytes));
        assert!(
            allocated <= active && active <= reserved,
            "allocated {allocated} ≤ active {active} ≤ reserved {reserved}"
        );
        assert!(requested <= active, "requested {requested} ≤ active {active}");
        assert!(active > allocated || requested <= allocated, "requested {requested} ≤ allocated {allocated}");
        assert!(bytes(&statistics.inactive_split_bytes) <= reserved - active, "inactive split ≤ reserved - active");
    }
}

/// Checks in addition that each current value is the difference of the accumulated ones. This holds until those are
/// reset.
pub(super) fn check_accumulated(device: Device) {
    let statistics = device.statistics();
    check_statistics(&statistics);
    for (name, PoolStat { all, small_pool, large_pool }) in statistics.pool_stats() {
        for stat in [all, small_pool, large_pool] {
            assert_eq!(stat.current, stat.allocated - stat.freed, "{name}: current = allocated - freed");
        }
    }
    let segments = statistics.num_device_alloc - statistics.num_device_free;
    // Pages that were mapped by one call may be returned at different times.
    if !statistics.expandable_segments && device.calls(Call::Map) == 0 {
        assert_eq!(statistics.segment.all.current, segments, "segments = device allocations - device frees");
    }
}

/// Checks that the blocks fill the segment without gaps, and that no two neighbours are free. Under `compact`, two free
/// neighbours may exist if they were last used by different streams.
fn check_segment(segment: &SegmentSnapshot, policy: Policy) {
    let mut address = segment.address;
    let mut before = None;
    for block in &segment.blocks {
        assert_eq!(block.address, address, "blocks must be contiguous in {segment:?}");
        assert!(block.size > 0 && block.size.is_multiple_of(512), "block sizes are multiples of 512: {block:?}");
        let free = block.state == BlockState::Inactive;
        let is_unmerged = free && before == Some(BlockState::Inactive);
        assert!(policy == Policy::Compact || !is_unmerged, "free neighbours are merged: {segment:?}");
        address += block.size;
        before = Some(block.state);
    }
    assert_eq!(address - segment.address, segment.total_size, "blocks fill the segment: {segment:?}");
}

/// Checks that aliased blocks lie within their alias range and do not overlap, and that their total equals that of the
/// aliased blocks in the segments.
fn check_aliases(snapshot: &Snapshot) {
    let mut shown = 0;
    for alias in &snapshot.aliases {
        let mut address = alias.address;
        for block in &alias.blocks {
            assert!(block.address >= address, "blocks overlap in {alias:?}");
            let is_in_use = matches!(block.state, BlockState::Allocated | BlockState::PendingFree);
            assert!(is_in_use && block.size > 0 && block.size.is_multiple_of(512), "{block:?}");
            address = block.address + block.size;
            shown += block.size;
        }
        assert!(address <= alias.address + alias.total_size, "blocks exceed the range: {alias:?}");
    }
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let aliased = blocks.filter(|block| block.state == BlockState::Aliased).map(|block| block.size);
    assert_eq!(aliased.sum::<u64>(), shown, "every aliased byte must be in use through its alias");
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    segments: i64,
    reserved: i64,
    allocations: i64,
    allocated: i64,
    active_blocks: i64,
    active: i64,
    requested: i64,
    inactive_split_blocks: i64,
    inactive_split: i64,
}

impl Sums {
    fn of<'a>(
        segments: impl Iterator<Item = &'a SegmentSnapshot>,
        aliases: impl Iterator<Item = &'a SegmentSnapshot>,
        policy: Policy,
    ) -> Self {
        let mut sums = Self::default();
        for segment in segments {
            // Not counted under `compact`: free parts of a split segment are not lost to other requests there.
            let counts_split = !segment.expandable && policy != Policy::Compact;
            sums.segments += i64::from(!segment.expandable);
            sums.reserved += segment.total_size as i64;
            for block in &segment.blocks {
                match block.state {
                    BlockState::Allocated | BlockState::PendingFree => sums.add_in_use(block),
                    BlockState::Inactive if segment.blocks.len() > 1 && counts_split => {
                        sums.inactive_split_blocks += 1;
                        sums.inactive_split += block.size as i64;
                    }
                    BlockState::Inactive | BlockState::Aliased => {}
                }
            }
        }
        aliases.flat_map(|alias| &alias.blocks).for_each(|block| sums.add_in_use(block));
        sums
    }

    fn add_in_use(&mut self, block: &BlockSnapshot) {
        let size = block.size as i64;
        if block.state == BlockState::Allocated {
            self.allocations += 1;
            self.allocated += size;
        }
        self.active_blocks += 1;
        self.active += size;
        self.requested += block.requested_size as i64;
    }
}
