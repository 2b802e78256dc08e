//! Blocks that other streams use when they are freed.

use super::*;

impl Shared {
    /// Allocates a block of stream 0 that another stream uses.
    fn allocate_used(&self, by: u32) -> Allocation<Idle> {
        let allocation = self.allocate(0);
        self.allocator.record_use(&allocation, stream_of(by)).unwrap();
        allocation
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
