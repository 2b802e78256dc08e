//! Readers beside the threads that allocate: what they see must agree in itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use accelerator_core::{Backend, BlockState, CachingAllocator, PoolKind, Snapshot, Statistics};

use super::relations::check_relations;

/// What a reader saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) reads: u64,
    /// Snapshots between two equal statistics: of one moment, so their sums were compared, too.
    pub(crate) of_one_moment: u64,
    /// The most blocks and bytes that were allocated at once.
    pub(crate) most: [i64; 2],
}

/// Reads all that can be read until told to stop.
pub(crate) fn read<B: Backend>(allocator: &CachingAllocator<B>, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let before = allocator.statistics();
        let snapshot = allocator.snapshot();
        let after = allocator.statistics();
        check_relations(&before.entries().into_iter().collect());
        check_snapshot(&snapshot);
        // The accumulated values only ever grow, so nothing has happened in between.
        if before == after {
            check_sums(&snapshot, &before, OnTheWay::Perhaps);
            seen.of_one_moment += 1;
        }
        let current = [before.allocation, before.allocated_bytes].map(|stat| stat.all.current);
        seen.most = [0, 1].map(|index| seen.most[index].max(current[index]));
        seen.reads += 1;
        thread::sleep(Duration::from_millis(1)); // so that those who allocate do so, too
    }
    seen
}

/// Blocks tile their segments, and free ones are merged.
pub(crate) fn check_snapshot(snapshot: &Snapshot) {
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
        assert!(!neighbours, "not merged: {segment:?}");
        let bytes = |counts: fn(BlockState) -> bool| -> u64 {
            segment.blocks.iter().filter(|block| counts(block.state)).map(|block| block.size).sum()
        };
        assert_eq!(segment.allocated_size, bytes(|state| state == BlockState::Allocated), "{segment:?}");
        assert_eq!(segment.active_size, bytes(|state| state != BlockState::Inactive), "{segment:?}");
        assert!(segment.requested_size <= segment.active_size, "{segment:?}");
        end_of_last = end;
    }
}

/// Whether segments may be between the books and the driver, counted and in no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTheWay {
    Perhaps,
    None,
}

/// The sums over a snapshot are the statistics of its moment.
pub(crate) fn check_sums(snapshot: &Snapshot, statistics: &Statistics, on_the_way: OnTheWay) {
    let mut sums = [[0; 9]; 2];
    for segment in &snapshot.segments {
        let sum = &mut sums[segment.pool as usize];
        let mut add = |quantity: usize, amount: u64| sum[quantity] += amount as i64;
        add(0, 1);
        add(1, segment.total_size);
        add(2, segment.allocated_size);
        add(3, segment.active_size);
        add(4, segment.requested_size);
        for block in &segment.blocks {
            match block.state {
                BlockState::Allocated => [5, 6].into_iter().for_each(|quantity| add(quantity, 1)),
                BlockState::PendingFree => add(6, 1),
                BlockState::Inactive if segment.blocks.len() > 1 => {
                    add(7, 1);
                    add(8, block.size);
                }
                BlockState::Inactive => {}
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
            (OnTheWay::Perhaps, 0 | 1) => {
                of_snapshot.iter().zip(&counted).all(|(seen, counted)| seen <= counted)
            }
            _ => of_snapshot == counted,
        };
        assert!(agree, "quantity {quantity}: {of_snapshot:?} in the snapshot, {counted:?} counted");
    }
}
