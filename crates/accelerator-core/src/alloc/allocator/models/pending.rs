//! Blocks that other streams use when they are freed.

use super::*;
use crate::graphs::CaptureMode;
use crate::types::MemPoolId;

impl Shared {
    /// Allocates a block of stream 0 that another stream uses.
    fn allocate_used(&self, by: u32) -> Allocation<Idle> {
        let allocation = self.allocate(0);
        self.allocator.record_use(&allocation, stream_of(by)).unwrap();
        allocation
    }

    /// Begins to capture the first stream. Returns what ends the capture.
    fn capture(&self) -> impl FnOnce(&Self) + use<> {
        let (number, pool) = (Idle::begin_capture(), MemPoolId::next_graph());
        self.allocator.hold_pool(pool, None).unwrap();
        let route = self.allocator.capture_begun(number, CaptureMode::Relaxed, pool);
        move |shared| {
            Idle::end_capture();
            let held = shared.allocator.capture_ended(number, route);
            held.into_iter().for_each(|pool| shared.allocator.release_pool_from_graph(pool));
        }
    }
}

#[test]
fn a_block_becomes_free_once_when_its_uses_are_over() {
    explore(4, || {
        let shared = Shared::new();
        let used = shared.allocate_used(1);
        Idle::begin_work();
        let device = thread::spawn(Idle::end_work);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || other.free(used));
        let block = shared.allocate(0); // polls
        shared.free(block);
        other.join().unwrap();
        device.join().unwrap();
        let block = shared.allocate(0);
        let statistics = shared.allocator.statistics();
        assert_eq!(statistics.active.all.current, 1, "a poll after the last use leaves no block pending");
        assert!(!shared.allocator.device.may_have_pending());
        shared.free(block);
        shared.check_at_end();
    });
}

/// The first block is in the queues, so each allocation polls. The others arrive while it does.
#[test]
fn no_use_is_lost_that_arrives_during_a_poll() {
    explore(2, || {
        let shared = Shared::new();
        let [first, second, third] = [1, 1, 2].map(|by| shared.allocate_used(by));
        shared.free(first);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            other.free(second);
            other.free(third);
        });
        let block = shared.allocate(0);
        shared.free(block);
        other.join().unwrap();
        let block = shared.allocate(0);
        assert_eq!(shared.allocator.statistics().active.all.current, 1, "a poll leaves no block pending");
        shared.free(block);
        shared.check_at_end();
    });
}

#[test]
fn a_thread_that_waits_for_memory_finds_what_is_being_freed() {
    explore(3, || {
        let shared = Shared::new();
        let used = shared.allocate_used(1);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || other.free(used));
        let is_freed = shared.allocator.statistics().allocation.all.current == 0;
        shared.allocator.empty_cache().unwrap();
        assert!(!is_freed || Idle::count_of_pieces() == 0, "the block was freed before the cache was emptied");
        other.join().unwrap();
        shared.check_at_end();
    });
}

/// The free of an earlier capture is over, so each allocation looks for such frees.
#[test]
fn a_free_in_a_capture_that_has_just_begun_waits_for_its_end() {
    explore(2, || {
        let shared = Shared::new();
        let [first, second] = [(); 2].map(|()| shared.allocate(1));
        let free_in_capture = |shared: &Shared, block| {
            let end = shared.capture();
            shared.allocator.record_use(&block, stream_of(2)).unwrap();
            shared.free(block);
            end
        };
        free_in_capture(&shared, first)(&shared);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || free_in_capture(&other, second));
        let block = shared.allocate(1);
        let end = other.join().unwrap();
        let active = || shared.allocator.statistics().active.all.current;
        assert_eq!(active(), 2, "the second block waits for the end of the capture");
        shared.free(block);
        end(&shared);
        let block = shared.allocate(1);
        assert_eq!(active(), 1, "a poll after the capture leaves no block pending");
        shared.free(block);
        shared.check_at_end();
    });
}
