//! Models of the whole allocator, on a device without memory.

mod pending;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::*;
use crate::stream::modelled::{Address, Idle};
use crate::sync::primitives::{explore, thread};
use crate::types::StreamId;

/// An allocator, and what it has given out. The latter is no part of the model: it notes at once what a call returned.
struct Shared {
    allocator: CachingAllocator<Idle>,
    given_out: Mutex<BTreeSet<u64>>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let allocator = CachingAllocator::new(Idle::streams(), AllocatorConfig::default());
        Arc::new(Self { allocator, given_out: Mutex::default() })
    }

    fn allocate(&self, stream: u32) -> Allocation<Idle> {
        let bytes = NonZeroU64::new(512).unwrap();
        let allocation = self.allocator.allocate(bytes, stream_of(stream)).unwrap();
        let is_new = self.given_out.lock().unwrap().insert(address(allocation.ptr));
        assert!(is_new, "{:?} was given out twice", allocation.ptr);
        allocation
    }

    fn free(&self, allocation: Allocation<Idle>) {
        assert!(self.given_out.lock().unwrap().remove(&address(allocation.ptr)));
        assert!(self.allocator.free(allocation).is_ok());
    }

    /// Checks that nothing is allocated, and that all memory goes back.
    fn check_at_end(&self) {
        #[cfg(debug_assertions)]
        self.allocator.check();
        self.allocator.empty_cache().unwrap();
        let statistics = self.allocator.statistics();
        let current = |stat: crate::types::PoolStat| stat.all.current;
        assert_eq!(
            [statistics.allocated_bytes, statistics.active_bytes, statistics.reserved_bytes].map(current),
            [0; 3]
        );
        assert_eq!(Idle::count_of_pieces(), 0);
    }
}

fn stream_of(number: u32) -> Stream<Idle> {
    Idle::streams().get(StreamId(number)).unwrap()
}

fn address(ptr: Address) -> u64 {
    ptr.trace_address()
}

#[test]
fn two_threads_allocate_for_one_stream() {
    explore(4, || {
        let shared = Shared::new();
        let first = shared.allocate(0); // this thread is the owner
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let block = other.allocate(0);
            other.free(block);
        });
        let second = shared.allocate(0);
        shared.free(first);
        other.join().unwrap();
        shared.free(second);
        shared.check_at_end();
    });
}

#[test]
fn one_thread_frees_what_another_allocated() {
    explore(4, || {
        let shared = Shared::new();
        let blocks = [shared.allocate(0), shared.allocate(0)];
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || blocks.map(|block| other.free(block)));
        let third = shared.allocate(0);
        shared.free(third);
        other.join().unwrap();
        shared.check_at_end();
    });
}

#[test]
fn the_cache_is_emptied_while_another_thread_allocates() {
    explore(1, || {
        let shared = Shared::new();
        let first = shared.allocate(0);
        shared.free(first);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let block = other.allocate(0);
            other.free(block);
        });
        shared.allocator.empty_cache().unwrap();
        other.join().unwrap();
        shared.check_at_end();
    });
}

#[test]
fn two_threads_that_empty_the_cache_both_find_it_empty() {
    explore(1, || {
        let shared = Shared::new();
        let block = shared.allocate(0);
        shared.free(block);
        let other = Arc::clone(&shared);
        let empty = |shared: &Shared| {
            shared.allocator.empty_cache().unwrap();
            assert_eq!(Idle::count_of_pieces(), 0, "memory is still on its way to the driver");
        };
        let other = thread::spawn(move || empty(&other));
        empty(&shared);
        other.join().unwrap();
        shared.check_at_end();
    });
}
