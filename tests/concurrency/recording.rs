//! A recording is complete from the moment it starts.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_conformance::Sim;
use accelerator_core::{
    Accelerator, BlockState, CachingAllocator, ContextsOf, History, HistoryAction, Recording, Stream, TraceAction,
};
use fastrand::Rng;

use super::device;

/// Recordings start while threads reach new peaks and therefore wait for each other.
#[test]
fn what_is_allocated_while_a_recording_begins_is_told_from_then_on() {
    let accelerator: &Accelerator<Sim> = device();
    let allocator = accelerator.allocator();
    let done = AtomicBool::new(false);
    let (mut rounds, mut untold) = (0, 0);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (done, stream) = (&done, accelerator.dedicated_stream(0).unwrap());
            scope.spawn(move || allocate_and_free(allocator, stream, seed, done));
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(4) {
            rounds += 1;
            allocator.record_history(None);
            allocator.reset_peak_statistics();
            let recording = Recording { max_entries: usize::MAX, contexts: ContextsOf::State, capture: None };
            allocator.record_history(Some(recording));
            let first = allocator.history();
            thread::sleep(Duration::from_micros(200));
            untold += untold_allocations(&first, &allocator.history());
        }
        done.store(true, Ordering::Relaxed);
    });
    allocator.record_history(None);
    assert!(rounds > 100, "{rounds} rounds");
    assert_eq!(untold, 0, "blocks whose allocation is not in the history, in {rounds} rounds");
}

fn allocate_and_free(allocator: &CachingAllocator<Sim>, stream: Stream<Sim>, seed: u64, done: &AtomicBool) {
    let mut random = Rng::with_seed(seed);
    let mut live = VecDeque::new();
    while !done.load(Ordering::Relaxed) {
        let bytes = NonZeroU64::new(512 * (1 + random.u64(..64))).unwrap();
        live.push_back(allocator.allocate(bytes, stream).unwrap());
        let kept = random.usize(..40);
        while live.len() > kept {
            allocator.free(live.pop_front().unwrap()).unwrap();
        }
    }
    live.into_iter().for_each(|block| allocator.free(block).unwrap());
}

/// Counts blocks allocated between the two histories without an entry.
fn untold_allocations(first: &History, last: &History) -> usize {
    let allocated = |history: &History| -> BTreeSet<u64> {
        let blocks = history.snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == BlockState::Allocated).map(|block| block.address).collect()
    };
    assert_eq!(last.dropped, 0);
    let told = last.entries.iter().filter(|entry| entry.action == HistoryAction::Trace(TraceAction::Alloc));
    let told: BTreeSet<u64> = told.map(|entry| entry.address).collect();
    let before = allocated(first);
    allocated(last).iter().filter(|block| !before.contains(block) && !told.contains(block)).count()
}
