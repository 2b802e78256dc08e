use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::*;
use crate::alloc::AllocatorConfig;
use crate::stream::modelled::Idle;
use crate::sync::primitives::{explore, thread};
use crate::types::StreamId;

const SIZE: NonZeroU64 = NonZeroU64::new(4096).unwrap();

/// An allocator, and what it has given out. The latter is no part of the model: it notes at once what a call returned.
struct Shared {
    allocator: CachingHostAllocator<Idle>,
    given_out: std::sync::Mutex<BTreeSet<usize>>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let settings = Arc::new(HostSettings::new(&AllocatorConfig::default()));
        let allocator = CachingHostAllocator::new(Idle::streams(), settings);
        Arc::new(Self { allocator, given_out: Default::default() })
    }

    /// Allocates as `CachingHostAllocator::block` does.
    fn allocate(&self) -> Block {
        self.allocator.process_events().unwrap();
        let block = self.allocator.classes.take(SIZE);
        let block = block.unwrap_or_else(|| self.allocator.after_miss(SIZE, SIZE).unwrap());
        let is_new = self.given_out.lock().unwrap().insert(block.start().addr().get());
        assert!(is_new, "a block was given out twice");
        block
    }

    /// Frees a block that these streams use.
    fn free(&self, block: Block, users: &[u32]) {
        assert!(self.given_out.lock().unwrap().remove(&block.start().addr().get()));
        self.allocator.free(block, Vec::new(), users.iter().map(|user| StreamId(*user)).collect());
    }

    /// Checks that nothing is active, and that all memory goes back.
    fn check_at_end(&self) {
        self.allocator.empty_cache().unwrap();
        assert!(self.allocator.pending.is_empty());
        let statistics = self.allocator.statistics();
        let counts = [statistics.active_bytes, statistics.active_requests, statistics.allocated_bytes];
        assert_eq!(counts.map(|stat| stat.current), [0; 3]);
        assert_eq!(Idle::count_of_pieces(), 0);
    }
}

#[test]
fn two_threads_never_get_the_same_block() {
    explore(6, || {
        let shared = Shared::new();
        let block = shared.allocate();
        shared.free(block, &[]);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let block = other.allocate();
            other.free(block, &[]);
        });
        let block = shared.allocate();
        shared.free(block, &[]);
        other.join().unwrap();
        shared.check_at_end();
    });
}

#[test]
fn a_block_becomes_free_once_when_its_uses_are_over() {
    explore(4, || {
        let shared = Shared::new();
        let used = shared.allocate();
        Idle::begin_work();
        let device = thread::spawn(Idle::end_work);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || other.free(used, &[1, 2]));
        let block = shared.allocate();
        shared.free(block, &[]);
        other.join().unwrap();
        device.join().unwrap();
        shared.check_at_end();
    });
}

#[test]
fn the_cache_is_emptied_while_other_threads_free_and_allocate() {
    explore(3, || {
        let shared = Shared::new();
        let block = shared.allocate();
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || other.free(block, &[1]));
        let emptying = Arc::clone(&shared);
        let emptying = thread::spawn(move || emptying.allocator.empty_cache().unwrap());
        let block = shared.allocate();
        shared.free(block, &[]);
        other.join().unwrap();
        emptying.join().unwrap();
        shared.check_at_end();
    });
}

#[test]
fn two_threads_that_empty_the_cache_both_find_it_empty() {
    explore(4, || {
        let shared = Shared::new();
        let block = shared.allocate();
        shared.free(block, &[]);
        let empty = |shared: &Shared| {
            shared.allocator.empty_cache().unwrap();
            assert_eq!(Idle::count_of_pieces(), 0, "memory is still on its way to the driver");
        };
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || empty(&other));
        empty(&shared);
        other.join().unwrap();
        shared.check_at_end();
    });
}
