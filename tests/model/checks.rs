//! Checks that apply after every operation.

use accelerator_core::{BlockState, PoolKind, SegmentSnapshot, Statistics};

use super::relations::{check_relations, pools};
use super::{Entry, Model};

impl Model {
    /// Checks everything: blocks, segments, sums, statistics, and the device's used bytes.
    pub(crate) fn check(&self, statistics: &Statistics, used: u64) {
        self.check_entries();
        self.segments.iter().for_each(check_segment);
        self.check_blocks();
        self.check_statistics(statistics);
        self.check_inactive_split(statistics);
        check_relations(statistics);
        let reserved: u64 = self.segments.iter().map(|segment| segment.total_size).sum();
        assert_eq!(reserved, used, "the snapshot's segments and the device's used bytes differ");
        assert_eq!(statistics.reserved_bytes.all.current, used as i64, "reserved_bytes and the device differ");
    }

    /// Checks that live and pending blocks do not overlap.
    fn check_entries(&self) {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.start);
        for pair in entries.windows(2) {
            assert!(pair[0].end() <= pair[1].start, "blocks overlap: {:?} and {:?}", pair[0], pair[1]);
        }
        for entry in entries {
            assert!(entry.start.is_multiple_of(512), "not aligned: {entry:?}");
            assert!(entry.size >= entry.requested, "too small: {entry:?}");
        }
    }

    /// Checks that the snapshot has exactly the model's blocks, if the model tracks them.
    fn check_blocks(&self) {
        let mut expected: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                let state = if entry.pending.is_some() { BlockState::PendingFree } else { BlockState::Allocated };
                (entry.start, entry.size, entry.requested, entry.stream, entry.small, state)
            })
            .collect();
        expected.sort_by_key(|block| block.0);
        let mut found = Vec::new();
        for segment in &self.segments {
            let small = segment.pool == PoolKind::Small;
            let active = segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
            found.extend(active.map(|block| {
                (block.address, block.size, block.requested_size, segment.stream.get(), small, block.state)
            }));
        }
        assert_eq!(found, expected, "the snapshot's blocks (left) differ from the live ones (right)");
    }

    fn check_statistics(&self, statistics: &Statistics) {
        let counted = |name: &str| match name {
            "inactive_split" | "inactive_split_bytes" => false,
            "segment" | "reserved_bytes" => !self.expanded,
            _ => true,
        };
        for ((name, found), (_, expected)) in statistics.pool_stats().into_iter().zip(self.tally.0.pool_stats()) {
            assert!(!counted(name) || found == expected, "{name}: {found:?}, expected {expected:?}");
        }
        let expected = &self.tally.0;
        assert_eq!(statistics.oversize_allocations, expected.oversize_allocations, "oversize_allocations");
        // Also reveals a mistake in the model's own counting.
        let in_use = self.entries.iter().map(|entry| {
            let Entry { small, size, requested, .. } = *entry;
            InUse { small, size, requested, allocated: entry.pending.is_none() }
        });
        check_sums(&self.tally.0, in_use);
        let counters = self.counters;
        assert_eq!(statistics.num_ooms, counters.num_ooms, "num_ooms");
        assert_eq!(statistics.num_oom_rejections, counters.num_oom_rejections, "num_oom_rejections");
        match self.expanded {
            true => self.check_expanded_statistics(statistics),
            false => {
                assert_eq!(statistics.oversize_segments, expected.oversize_segments, "oversize_segments");
                assert_eq!(statistics.num_device_alloc, counters.num_device_alloc, "num_device_alloc");
                assert_eq!(statistics.num_device_free, counters.num_device_free, "num_device_free");
            }
        }
        assert!(statistics.num_alloc_retries >= counters.num_ooms, "an out-of-memory error without a retry");
    }

    /// Checks the free blocks of split segments, counted from the snapshot.
    fn check_inactive_split(&self, statistics: &Statistics) {
        for (pool, chosen) in [None, Some(PoolKind::Small), Some(PoolKind::Large)].into_iter().enumerate() {
            let shared: Vec<u64> = self
                .segments
                .iter()
                .filter(|segment| !segment.expandable)
                .filter(|segment| segment.blocks.len() > 1 && chosen.is_none_or(|pool| pool == segment.pool))
                .flat_map(|segment| &segment.blocks)
                .filter(|block| block.state == BlockState::Inactive)
                .map(|block| block.size)
                .collect();
            let (name, count) = pools(statistics.inactive_split)[pool];
            assert_eq!(count.current, shared.len() as i64, "inactive_split.{name}");
            let (name, bytes) = pools(statistics.inactive_split_bytes)[pool];
            assert_eq!(bytes.current, shared.iter().sum::<u64>() as i64, "inactive_split_bytes.{name}");
        }
    }
}

/// A block that is allocated, or pending.
pub(crate) struct InUse {
    pub(crate) small: bool,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) allocated: bool,
}

/// Checks that the block statistics are the sums over these blocks, for each pool.
pub(crate) fn check_sums(statistics: &Statistics, in_use: impl Iterator<Item = InUse> + Clone) {
    let Statistics { allocation, allocated_bytes, active, active_bytes, requested_bytes, .. } = *statistics;
    for (pool, chosen) in [None, Some(true), Some(false)].into_iter().enumerate() {
        let blocks = || in_use.clone().filter(|block| chosen.is_none_or(|small| small == block.small));
        let allocated = || blocks().filter(|block| block.allocated);
        for (name, stat, sum) in [
            ("allocation", allocation, allocated().count() as u64),
            ("allocated_bytes", allocated_bytes, allocated().map(|block| block.size).sum()),
            ("active", active, blocks().count() as u64),
            ("active_bytes", active_bytes, blocks().map(|block| block.size).sum()),
            ("requested_bytes", requested_bytes, blocks().map(|block| block.requested).sum()),
        ] {
            let (pool, stat) = pools(stat)[pool];
            assert_eq!(stat.current, sum as i64, "sum of {name}.{pool}");
        }
    }
}

/// Checks that the blocks tile the segment, that no two neighbours are free, and that the segment's sums match.
fn check_segment(segment: &SegmentSnapshot) {
    let mut end = segment.address;
    for block in &segment.blocks {
        assert_eq!(block.address, end, "a gap or an overlap in {segment:?}");
        assert!(block.size >= 512 && block.size.is_multiple_of(512), "{block:?} is not a multiple of 512");
        end += block.size;
    }
    assert_eq!(end, segment.address + segment.total_size, "the blocks do not fill {segment:?}");
    for pair in segment.blocks.windows(2) {
        let free = pair.iter().all(|block| block.state == BlockState::Inactive);
        assert!(!free, "neighbours not merged: {pair:?}");
    }
    let sum = |size: fn(&accelerator_core::BlockSnapshot) -> u64, states: &[BlockState]| -> u64 {
        segment.blocks.iter().filter(|block| states.contains(&block.state)).map(size).sum()
    };
    let active = [BlockState::Allocated, BlockState::PendingFree];
    assert_eq!(segment.allocated_size, sum(|block| block.size, &active[..1]), "{segment:?}");
    assert_eq!(segment.active_size, sum(|block| block.size, &active), "{segment:?}");
    assert_eq!(segment.requested_size, sum(|block| block.requested_size, &active), "{segment:?}");
}
