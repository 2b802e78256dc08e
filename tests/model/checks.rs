//! What must hold after every operation.

use std::collections::BTreeMap;

use accelerator_core::{BlockState, PoolKind, SegmentSnapshot, Statistics};

use super::relations::check_relations;
use super::{Entry, Model};

impl Model {
    /// Everything at once: blocks, segments, sums, statistics, and what the device says that it has handed out.
    pub(crate) fn check(&self, statistics: &Statistics, used: u64) {
        self.check_entries();
        self.segments.iter().for_each(check_segment);
        self.check_blocks();
        let statistics = statistics.entries().into_iter().collect::<BTreeMap<_, _>>();
        self.check_statistics(&statistics);
        self.check_inactive_split(&statistics);
        check_relations(&statistics);
        let reserved: u64 = self.segments.iter().map(|segment| segment.total_size).sum();
        assert_eq!(reserved, used, "the snapshot's segments and the device's count differ");
        assert_eq!(
            statistics["reserved_bytes.all.current"], used as i64,
            "reserved_bytes and the device differ"
        );
    }

    /// Live blocks and those that streams still use lie apart.
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

    /// The snapshot has exactly the model's blocks, where the model has them.
    fn check_blocks(&self) {
        let mut expected: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                let state =
                    if entry.pending.is_some() { BlockState::PendingFree } else { BlockState::Allocated };
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
        assert_eq!(found, expected, "the snapshot's blocks (left) are not those that live (right)");
    }

    fn check_statistics(&self, statistics: &BTreeMap<String, i64>) {
        let followed = |key: &str| {
            !self.expanded || !["segment", "reserved", "oversize_s"].iter().any(|of| key.starts_with(of))
        };
        for (key, count) in self.tally.iter().filter(|(key, _)| followed(key)) {
            for (metric, expected) in [
                ("current", count.current),
                ("peak", count.peak),
                ("allocated", count.allocated),
                ("freed", count.freed),
            ] {
                assert_eq!(statistics[&format!("{key}.{metric}")], expected, "{key}.{metric}");
            }
        }
        self.check_sums();
        let counters = self.counters;
        assert_eq!(statistics["num_ooms"], counters.num_ooms, "num_ooms");
        assert_eq!(statistics["num_oom_rejections"], counters.num_oom_rejections, "num_oom_rejections");
        match self.expanded {
            true => self.check_expanded_statistics(statistics),
            false => {
                assert_eq!(statistics["num_device_alloc"], counters.num_device_alloc, "num_device_alloc");
                assert_eq!(statistics["num_device_free"], counters.num_device_free, "num_device_free");
            }
        }
        assert!(statistics["num_alloc_retries"] >= counters.num_ooms, "an out of memory without a retry");
    }

    /// The counts are the sums over the list, so that a slip in the model's own counting shows too.
    fn check_sums(&self) {
        for (pool, chosen) in [("all", None), ("small_pool", Some(true)), ("large_pool", Some(false))] {
            let active: Vec<&Entry> =
                self.entries.iter().filter(|entry| chosen.is_none_or(|small| small == entry.small)).collect();
            let allocated: Vec<&&Entry> = active.iter().filter(|entry| entry.pending.is_none()).collect();
            for (name, sum) in [
                ("allocation", allocated.len() as u64),
                ("allocated_bytes", allocated.iter().map(|entry| entry.size).sum()),
                ("active", active.len() as u64),
                ("active_bytes", active.iter().map(|entry| entry.size).sum()),
                ("requested_bytes", active.iter().map(|entry| entry.requested).sum()),
            ] {
                assert_eq!(
                    self.tally.of(&format!("{name}.{pool}")).current,
                    sum as i64,
                    "sum of {name}.{pool}"
                );
            }
        }
    }

    /// Free blocks that share a segment, counted from the snapshot.
    fn check_inactive_split(&self, statistics: &BTreeMap<String, i64>) {
        for (pool, chosen) in
            [("all", None), ("small_pool", Some(PoolKind::Small)), ("large_pool", Some(PoolKind::Large))]
        {
            let shared: Vec<u64> = self
                .segments
                .iter()
                .filter(|segment| !segment.expandable)
                .filter(|segment| segment.blocks.len() > 1 && chosen.is_none_or(|pool| pool == segment.pool))
                .flat_map(|segment| &segment.blocks)
                .filter(|block| block.state == BlockState::Inactive)
                .map(|block| block.size)
                .collect();
            let current = |name: &str| statistics[&format!("{name}.{pool}.current")];
            assert_eq!(current("inactive_split"), shared.len() as i64, "inactive_split.{pool}");
            assert_eq!(
                current("inactive_split_bytes"),
                shared.iter().sum::<u64>() as i64,
                "inactive_split_bytes.{pool}"
            );
        }
    }
}

/// Blocks tile the segment, no two neighbours are free, and its sums are theirs.
fn check_segment(segment: &SegmentSnapshot) {
    let mut end = segment.address;
    for block in &segment.blocks {
        assert_eq!(block.address, end, "a hole or an overlap in {segment:?}");
        assert!(block.size >= 512 && block.size.is_multiple_of(512), "{block:?} is no multiple of 512");
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
