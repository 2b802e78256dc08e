//! Checks that apply after every operation.

use accelerator_conformance::PhysicalRange;
use accelerator_core::{BlockSnapshot, BlockState, PoolKind, SegmentSnapshot, Snapshot, Statistics};

use super::expected::{Entry, Simulated};
use super::machine::Machine;
use crate::model::checks::{InUse, check_sums};
use crate::model::relations::check_relations;

impl<B: Simulated> Machine<B> {
    pub(super) fn check(&mut self) {
        let allocator = self.accelerator.allocator();
        #[cfg(debug_assertions)]
        allocator.check();
        let (statistics, snapshot) = (allocator.statistics(), allocator.snapshot());
        let pending: Vec<u64> = blocks(&snapshot)
            .filter(|block| block.state == BlockState::PendingFree)
            .map(|block| block.address)
            .collect();
        let driver = self.driver();
        self.expected.no_longer_pending(driver, |entry| pending.contains(&entry.start));
        self.expected.check_order(driver);
        self.expected.check_memory(driver);
        self.check_statistics(&statistics);
        self.check_blocks(&snapshot);
        let maps = self.driver().virtual_memory().is_some();
        snapshot.segments.iter().for_each(|segment| check_tiles(segment, maps));
        snapshot.segments.iter().chain(&snapshot.aliases).for_each(check_segment_sums);
        self.check_memory(&snapshot, &statistics);
        self.aliased += u64::from(!snapshot.aliases.is_empty());
    }

    /// Checks that the snapshot has exactly the blocks in use, in segments or in aliases.
    fn check_blocks(&self, snapshot: &Snapshot) {
        let seen = |entry: &Entry, state| (entry.start, entry.size, entry.requested, state);
        let live = self.expected.live.values().map(|(entry, _)| seen(entry, BlockState::Allocated));
        let pending = self.expected.pending.iter().map(|entry| seen(entry, BlockState::PendingFree));
        let mut expected: Vec<_> = live.chain(pending).collect();
        let is_active = |block: &&BlockSnapshot| matches!(block.state, BlockState::Allocated | BlockState::PendingFree);
        let mut found: Vec<_> = blocks(snapshot)
            .filter(is_active)
            .map(|block| (block.address, block.size, block.requested_size, block.state))
            .collect();
        expected.sort_unstable_by_key(|block| block.0);
        found.sort_unstable_by_key(|block| block.0);
        assert_eq!(found, expected, "the snapshot's blocks (left) differ from the live ones (right)");
    }

    fn check_statistics(&self, statistics: &Statistics) {
        check_relations(statistics);
        let in_use = |entry: &Entry, allocated| {
            let Entry { small, size, requested, .. } = *entry;
            InUse { small, size, requested, allocated }
        };
        let live = self.expected.live.values().map(|(entry, _)| in_use(entry, true));
        check_sums(statistics, live.chain(self.expected.pending.iter().map(|entry| in_use(entry, false))));
        for (name, found, expected) in [
            ("allocation.all.allocated", statistics.allocation.all.allocated, self.counted.served),
            ("num_ooms", statistics.num_ooms, self.counted.ooms),
            ("num_oom_rejections", statistics.num_oom_rejections, self.counted.rejections),
        ] {
            assert_eq!(found, expected, "{name}");
        }
    }

    /// Checks that segments cover all memory, each byte once, and mark what aliases use of it.
    fn check_memory(&self, snapshot: &Snapshot, statistics: &Statistics) {
        let memory = |block: &BlockSnapshot| {
            let memory = self.driver().sim().physical(block.address, block.size);
            memory.unwrap_or_else(|| panic!("without memory: {block:?}"))
        };
        let of = |segments: &[SegmentSnapshot], state: Option<BlockState>| {
            let blocks = segments.iter().flat_map(|segment| &segment.blocks);
            let chosen = blocks.filter(|block| state.is_none_or(|state| state == block.state));
            joined(chosen.flat_map(memory).collect())
        };
        assert_eq!(
            of(&snapshot.segments, Some(BlockState::Aliased)),
            of(&snapshot.aliases, None),
            "the bytes marked as aliased (left) and those of the blocks in aliases (right)"
        );
        let bytes = |ranges: &[PhysicalRange]| ranges.iter().map(|range| range.len).sum::<u64>();
        let reserved = bytes(&of(&snapshot.segments, None));
        assert_eq!(reserved, snapshot.segments.iter().map(|segment| segment.total_size).sum::<u64>());
        assert_eq!(reserved, self.driver().used(), "the snapshot and the device differ");
        for (pool, stat) in [
            (PoolKind::Small, statistics.reserved_bytes.small_pool),
            (PoolKind::Large, statistics.reserved_bytes.large_pool),
        ] {
            let own = snapshot.segments.iter().filter(|segment| segment.pool == pool);
            assert_eq!(own.map(|segment| segment.total_size).sum::<u64>() as i64, stat.current, "{pool:?}");
        }
    }

    /// Returns the size of the longest run of adjacent free blocks in a segment of the large pool.
    pub(super) fn longest_free_row(&self) -> u64 {
        let snapshot = self.accelerator.allocator().snapshot();
        let large = snapshot.segments.iter().filter(|segment| segment.pool == PoolKind::Large);
        let rows = large.flat_map(|segment| {
            let rows = segment.blocks.split(|block| block.state != BlockState::Inactive);
            rows.map(|row| row.iter().map(|block| block.size).sum())
        });
        rows.max().unwrap_or(0)
    }
}

fn blocks(snapshot: &Snapshot) -> impl Iterator<Item = &BlockSnapshot> {
    snapshot.segments.iter().chain(&snapshot.aliases).flat_map(|segment| &segment.blocks)
}

/// Sorts the ranges and joins adjacent ones. No byte may occur twice.
fn joined(mut ranges: Vec<PhysicalRange>) -> Vec<PhysicalRange> {
    ranges.sort_unstable();
    let mut joined: Vec<PhysicalRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.memory == range.memory && last.offset + last.len >= range.offset => {
                assert_eq!(last.offset + last.len, range.offset, "bytes occur twice: {last:?}, {range:?}");
                last.len += range.len;
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Checks that blocks tile the segment.
fn check_tiles(segment: &SegmentSnapshot, maps: bool) {
    let mut end = segment.address;
    for block in &segment.blocks {
        assert!(block.address == end && block.size > 0, "a gap or an overlap in {segment:?}");
        end += block.size;
    }
    assert_eq!(end, segment.address + segment.total_size, "{segment:?}");
    let is_free = |block: &BlockSnapshot| block.state == BlockState::Inactive;
    let merged = segment.blocks.windows(2).all(|pair| !(is_free(&pair[0]) && is_free(&pair[1])));
    // Free blocks of different streams are not merged where streams share memory. Without virtual memory, such segments
    // look like any other.
    assert!(merged || segment.expandable || !maps, "neighbours not merged: {segment:?}");
}

fn check_segment_sums(segment: &SegmentSnapshot) {
    let sum = |size: fn(&BlockSnapshot) -> u64, states: &[BlockState]| -> u64 {
        segment.blocks.iter().filter(|block| states.contains(&block.state)).map(size).sum()
    };
    let active = [BlockState::Allocated, BlockState::PendingFree];
    assert_eq!(segment.allocated_size, sum(|block| block.size, &active[..1]), "{segment:?}");
    assert_eq!(segment.active_size, sum(|block| block.size, &active), "{segment:?}");
    assert_eq!(segment.requested_size, sum(|block| block.requested_size, &active), "{segment:?}");
}
