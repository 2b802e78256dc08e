//! Models of the peaks: two streams that count blocks, each on a thread, while headroom moves between them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::*;
use crate::alloc::stats::{Counted, Counting, Pair, StreamCounters};
use crate::sync::primitives::{explore, thread};
use crate::types::Statistics;

/// The sizes of the blocks, by stream. Every sum of some of them is different.
const SIZES: [i64; 2] = [512, 1024];

struct Shared {
    arenas: Arenas,
    /// Counts the beginnings and ends of calls. Like the spans, it is no part of the model: it only notes the order in
    /// which the steps of a run were made.
    clock: AtomicU32,
    /// When each stream's block was given out and freed: the beginnings and ends of the two calls.
    spans: [OnceLock<[u32; 4]>; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        let arenas = Arenas::new(AllocatorConfig::default(), 1 << 30, false, |_| unreachable!("nothing is shared"));
        Arc::new(Self { arenas, clock: AtomicU32::new(0), spans: Default::default() })
    }

    fn now(&self) -> u32 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts an operation as the allocator does.
    fn count(&self, stream: usize, operation: impl Fn(&mut StreamCounters) -> Counting) {
        let operation = |arena: &mut Arena| operation(arena.counters_mut());
        let id = ArenaId::of_stream(StreamId(stream as u32));
        if let Some(mut arena) = self.arenas.of(id).lock_owned()
            && operation(&mut arena).is_ok()
        {
            return;
        }
        let mut arena = self.arenas.of(id).lock();
        if self.arenas.perhaps_gathered(&mut arena, operation).is_err() {
            settled(operation(self.arenas.enter(arena).settle()));
        }
    }

    fn give_out(&self, stream: usize) {
        self.count(stream, |counters| counters.given_out(block(stream)));
    }

    fn free(&self, stream: usize) {
        self.count(stream, |counters| counters.freed(block(stream)));
    }

    /// Gives a block out and frees it, and notes when.
    fn use_block(&self, stream: usize) {
        let given = [self.now(), {
            self.give_out(stream);
            self.now()
        }];
        let freed = [self.now(), {
            self.free(stream);
            self.now()
        }];
        self.spans[stream].set([given[0], given[1], freed[0], freed[1]]).unwrap();
    }

    /// Returns the peaks that are possible, given when the calls were made.
    fn possible_peaks(&self) -> Vec<i64> {
        let [one, other] = self.spans.each_ref().map(|span| *span.get().unwrap());
        let (apart, together) = (SIZES[0].max(SIZES[1]), SIZES[0] + SIZES[1]);
        if one[1] < other[2] && other[1] < one[2] {
            return vec![together];
        }
        if one[3] < other[0] || other[3] < one[0] {
            return vec![apart];
        }
        vec![apart, together]
    }

    fn check_at_end(&self) {
        let Statistics { allocated_bytes, allocation, active_bytes, requested_bytes, .. } = self.arenas.sum();
        let bytes = allocated_bytes.all;
        let possible = self.possible_peaks();
        assert!(possible.contains(&bytes.peak), "the peak is {}, but must be one of {possible:?}", bytes.peak);
        assert_eq!((bytes.current, bytes.allocated), (0, SIZES[0] + SIZES[1]));
        assert_eq!(allocation.all.allocated, 2);
        assert_eq!((active_bytes.all, requested_bytes.all), (bytes, bytes));
        #[cfg(debug_assertions)]
        self.arenas.hold_all().check();
    }
}

fn block(stream: usize) -> Counted {
    let bytes = SIZES[stream] as u64;
    Counted { pool: PoolKind::Small, bytes, requested: bytes, oversize: false, split: Pair::default() }
}

/// Uses a block of each stream, on two threads, and checks the peak.
fn use_both(shared: &Arc<Shared>) {
    let other = Arc::clone(shared);
    let other = thread::spawn(move || other.use_block(1));
    shared.use_block(0);
    other.join().unwrap();
    shared.check_at_end();
}

#[test]
fn the_peak_is_that_of_the_sums_in_some_order_of_the_calls() {
    explore(2, || {
        let shared = Shared::new();
        use_both(&shared);
    });
}

/// All headroom is with the second stream at first, and this thread owns both arenas. The headroom suffices for one
/// block, but not for both.
#[test]
fn headroom_that_moves_between_streams_raises_no_peak() {
    explore(4, || {
        let shared = Shared::new();
        for stream in [0, 1] {
            shared.give_out(stream);
            shared.free(stream);
        }
        shared.arenas.reset_accumulated();
        use_both(&shared);
    });
}

#[test]
fn a_reading_is_of_one_moment() {
    explore(4, || {
        let shared = Shared::new();
        shared.give_out(1);
        shared.free(1);
        shared.give_out(0);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            other.give_out(1);
            other.free(0);
        });
        let read = shared.arenas.sum().allocated_bytes.all;
        let possible = [SIZES[0], SIZES[0] + SIZES[1], SIZES[1]];
        assert!(possible.contains(&read.current) && read.peak >= read.current, "{read:?}");
        other.join().unwrap();
        let read = shared.arenas.sum().allocated_bytes.all;
        assert_eq!((read.current, read.peak), (SIZES[1], SIZES[0] + SIZES[1]));
    });
}
