//! Readers that run concurrently with the allocating threads. What they see must be consistent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use accelerator_core::{Backend, BlockState, CachingAllocator, PoolKind, SegmentSnapshot, Snapshot, Statistics};

use super::relations::check_relations;

/// What a reader has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) reads: u64,
    /// Snapshots between two equal statistics. They are of the same moment, so their sums were compared as well.
    pub(crate) of_one_moment: u64,
    /// Snapshots with memory visible at two addresses.
    pub(crate) of_aliases: u64,
    /// The maximum number of blocks and bytes allocated at once.
    pub(crate) most: [i64; 2],
}

/// Reads everything readable until it is told to stop.
pub(crate) fn read<B: Backend>(allocator: &CachingAllocator<B>, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let before = allocator.statistics();
        let snapshot = allocator.snapshot();
        let after = allocator.statistics();
        check_relations(&before);
        check_snapshot(&snapshot, OnTheWay::Perhaps);
        // The cumulative values never decrease, so nothing has happened in between.
        if before == after {
            check_sums(&snapshot, &before, OnTheWay::Perhaps);
            seen.of_one_moment += 1;
        }
        let current = [before.allocation, before.allocated_bytes].map(|stat| stat.all.current);
        seen.most = [0, 1].map(|index| seen.most[index].max(current[index]));
        seen.of_aliases += u64::from(!snapshot.aliases.is_empty());
        seen.reads += 1;
        thread::sleep(Duration::from_millis(1)); // so that the allocating threads make progress
    }
    seen
}

/// Checks that blocks tile their segments, that adjacent free blocks of a stream are merged, and that aliased memory is
/// marked.
pub(crate) fn check_snapshot(snapshot: &Snapshot, on_the_way: OnTheWay) {
    let mut end_of_last = 0;
    for segment in &snapshot.segments {
        assert!(segment.address >= end_of_last, "segments overlap: {segment:?}");
        let mut end = segment.address;
        for block in &segment.blocks {
            assert!(block.address == end && block.size > 0, "a gap or an overlap at {block:?}: {segment:?}");
            end += block.size;
        }
        assert_eq!(end, segment.address + segment.total_size, "{segment:?}");
        let free = |state| state == BlockState::Inactive;
        let neighbours = segment.blocks.windows(2).any(|pair| free(pair[0].state) && free(pair[1].state));
        assert!(!neighbours || segment.expandable, "not merged: {segment:?}");
        check_segment_sums(segment);
        end_of_last = end;
    }
    for alias in &snapshot.aliases {
        let mut end = alias.address;
        for block in &alias.blocks {
            assert!(block.address >= end, "an overlap at {block:?}: {alias:?}");
            end = block.address + block.size;
        }
        assert!(end <= alias.address + alias.total_size, "{alias:?}");
        check_segment_sums(alias);
    }
    let marked = snapshot.segments.iter().map(|segment| bytes(segment, &[BlockState::Aliased])).sum::<u64>();
    let shown = snapshot.aliases.iter().map(|alias| alias.active_size).sum();
    // Bytes are marked while the driver is mapping or unmapping them.
    assert!(marked == shown || (marked > shown && on_the_way == OnTheWay::Perhaps), "{snapshot:?}");
}

fn check_segment_sums(segment: &SegmentSnapshot) {
    let active = [BlockState::Allocated, BlockState::PendingFree];
    assert_eq!(segment.allocated_size, bytes(segment, &active[..1]), "{segment:?}");
    assert_eq!(segment.active_size, bytes(segment, &active), "{segment:?}");
    assert!(segment.requested_size <= segment.active_size, "{segment:?}");
}

fn bytes(segment: &SegmentSnapshot, states: &[BlockState]) -> u64 {
    segment.blocks.iter().filter(|block| states.contains(&block.state)).map(|block| block.size).sum()
}

/// Whether memory may be in transit between the allocator and the driver: counted segments and reserved bytes that the
/// snapshot does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTheWay {
    Perhaps,
    None,
}

/// Checks that the sums over a snapshot equal the statistics of the same moment.
pub(crate) fn check_sums(snapshot: &Snapshot, statistics: &Statistics, on_the_way: OnTheWay) {
    let mut sums = [[0; 9]; 2];
    let aliases = snapshot.aliases.iter().map(|alias| (alias, 0));
    for (segment, memory) in snapshot.segments.iter().map(|segment| (segment, segment.total_size)).chain(aliases) {
        let sum = &mut sums[segment.pool as usize];
        let mut add = |quantity: usize, amount: u64| sum[quantity] += amount as i64;
        let of_fixed_size = !segment.expandable && memory > 0;
        add(0, u64::from(of_fixed_size));
        add(1, memory);
        add(2, segment.allocated_size);
        add(3, segment.active_size);
        add(4, segment.requested_size);
        for block in &segment.blocks {
            match block.state {
                BlockState::Allocated => [5, 6].into_iter().for_each(|quantity| add(quantity, 1)),
                BlockState::PendingFree => add(6, 1),
                BlockState::Inactive if segment.blocks.len() > 1 && of_fixed_size => {
                    add(7, 1);
                    add(8, block.size);
                }
                BlockState::Inactive | BlockState::Aliased => {}
            }
        }
    }
    let of_all = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|quantity| sums[0][quantity] + sums[1][quantity]);
    let stats = [
        statistics.segment,
        statistics.reserved_bytes,
        statistics.allocated_bytes,
        statistics.active_bytes,
        statistics.requested_bytes,
        statistics.allocation,
        statistics.active,
        statistics.inactive_split,
        statistics.inactive_split_bytes,
    ];
    let [small, large] = [PoolKind::Small, PoolKind::Large].map(|pool| sums[pool as usize]);
    for (quantity, stat) in stats.into_iter().enumerate() {
        let of_snapshot = [of_all[quantity], small[quantity], large[quantity]];
        let counted = [stat.all, stat.small_pool, stat.large_pool].map(|stat| stat.current);
        let agree = match (on_the_way, quantity) {
            (OnTheWay::Perhaps, 0 | 1) => of_snapshot.iter().zip(&counted).all(|(seen, counted)| seen <= counted),
            _ => of_snapshot == counted,
        };
        assert!(agree, "quantity {quantity}: {of_snapshot:?} in the snapshot, {counted:?} counted");
    }
}
