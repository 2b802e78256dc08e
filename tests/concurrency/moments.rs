//! A reading is of a single moment across all streams.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, Allocation, BlockState, Stream};

use super::device;

/// A block that alternates between the first and the last stream is always on one of them, and briefly on both. A
/// reader that visits one stream after another would find it on neither if it moved from the last to the first in
/// between.
#[test]
fn a_block_that_goes_to_and_fro_is_always_seen() {
    const STREAMS: usize = 8;
    /// Extra blocks, so that reading a stream takes some time.
    const BESIDE: usize = 200;
    let accelerator: &Accelerator<Sim> = device();
    let allocator = accelerator.allocator();
    let streams = [(); STREAMS].map(|()| accelerator.dedicated_stream(0).unwrap());
    let allocate =
        |stream: Stream<Sim>| -> Allocation<Sim> { allocator.allocate(NonZeroU64::new(512).unwrap(), stream).unwrap() };
    let beside: Vec<_> = (0..STREAMS * BESIDE).map(|number| allocate(streams[number % STREAMS])).collect();
    let at_least = beside.len() as i64 + 1;
    let done = AtomicBool::new(false);
    let mut block = allocate(streams[0]);
    let (snapshots, statistics) = thread::scope(|scope| {
        let going = scope.spawn(|| {
            for stream in [streams[STREAMS - 1], streams[0]].into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let before = std::mem::replace(&mut block, allocate(stream));
                allocator.free(before).unwrap();
            }
        });
        // On a busy machine, the thread may not begin for longer than all readings take.
        while allocator.statistics().allocation.all.allocated <= at_least + 1 {
            thread::yield_now();
        }
        let snapshots: Vec<i64> = (0..500)
            .map(|_| {
                let segments = allocator.snapshot().segments;
                let blocks = segments.iter().flat_map(|segment| &segment.blocks);
                blocks.filter(|block| block.state == BlockState::Allocated).count() as i64
            })
            .collect();
        let statistics: Vec<_> = (0..20_000).map(|_| allocator.statistics().allocation.all).collect();
        done.store(true, Ordering::Relaxed);
        going.join().unwrap();
        (snapshots, statistics)
    });
    for blocks in snapshots.into_iter().chain(statistics.iter().map(|stat| stat.current)) {
        assert!((at_least..=at_least + 1).contains(&blocks), "{blocks} blocks, expected {at_least} or one more");
    }
    let peak = allocator.statistics().allocation.all.peak;
    assert_eq!(peak, at_least + 1);
    assert!(statistics.iter().any(|stat| stat.allocated > at_least + 1), "the block never moved");
    beside.into_iter().chain([block]).for_each(|block| allocator.free(block).unwrap());
}
