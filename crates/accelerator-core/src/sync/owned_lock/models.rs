use std::sync::Arc;

use super::*;
use crate::sync::barrier::modelled::{System, answer};
use crate::sync::primitives::explore;
use crate::sync::thread_number::models::become_thread;

/// Counts under the lock. A guard accesses the value as a whole, so two guards at once fail the model, and so does a
/// guard that does not see what was done under an earlier one.
struct Counter(OwnedLock<u32>);

impl Counter {
    fn new() -> Arc<Self> {
        Arc::new(Self(OwnedLock::new(0)))
    }

    fn add(&self) {
        *self.0.lock() += 1;
    }

    fn try_add(&self) -> u32 {
        self.0.try_lock().map_or(0, |mut count| {
            *count += 1;
            1
        })
    }

    fn add_as_owner(&self) -> u32 {
        self.0.lock_owned().map_or(0, |mut count| {
            *count += 1;
            1
        })
    }

    fn try_add_as_owner(&self) -> u32 {
        self.0.try_lock_owned().map_or(0, |mut count| {
            *count += 1;
            1
        })
    }

    fn is_mine(&self) -> bool {
        self.0.owner.load(Ordering::Relaxed) == thread_number()
    }
}

/// Runs a function of the counter on a thread with this number.
fn on_thread(
    number: u64,
    counter: &Arc<Counter>,
    work: impl FnOnce(&Counter) -> u32 + Send + 'static,
) -> thread::JoinHandle<u32> {
    let counter = Arc::clone(counter);
    thread::spawn(move || {
        become_thread(number);
        work(&counter)
    })
}

/// The first thread to lock is the owner, and locks again, while another thread locks.
fn owner_and_another(system: System, preemptions: usize) {
    explore(preemptions, move || {
        answer(system);
        become_thread(1);
        let counter = Counter::new();
        let other = on_thread(2, &counter, |counter| {
            counter.add();
            counter.add();
            2
        });
        counter.add();
        let added = 1 + other.join().unwrap();
        assert_eq!(*counter.0.lock(), added);
    });
}

#[test]
fn the_owner_is_never_inside_together_with_another() {
    owner_and_another(System::Supports, 8);
}

#[test]
fn without_a_barrier_it_is_a_mutex() {
    owner_and_another(System::Lacks, 8);
    explore(3, || {
        answer(System::Lacks);
        become_thread(1);
        let counter = Counter::new();
        (0..3).for_each(|_| counter.add());
        assert!(!counter.is_mine());
    });
}

#[test]
fn a_barrier_that_is_refused_later_ends_ownership() {
    owner_and_another(System::RefusesAfter(0), 8);
    owner_and_another(System::RefusesAfter(1), 8);
    explore(3, || {
        answer(System::RefusesAfter(0));
        become_thread(1);
        let counter = Counter::new();
        let other = on_thread(2, &counter, |counter| {
            counter.add();
            u32::from(counter.is_mine())
        });
        assert_eq!(other.join().unwrap(), 1, "it was the first");
        (0..3).for_each(|_| counter.add());
        assert!(!barrier::is_possible() && !counter.is_mine());
    });
}

#[test]
fn try_lock_enters_only_a_free_lock() {
    explore(5, || {
        become_thread(1);
        let counter = Counter::new();
        let other = on_thread(2, &counter, |counter| {
            counter.add();
            counter.add_as_owner() + counter.try_add() + 1
        });
        let tried = counter.try_add() + counter.try_add();
        let added = tried + other.join().unwrap();
        assert_eq!(*counter.0.lock(), added);
    });
}

#[test]
fn an_owner_that_tries_enters_only_a_free_lock() {
    explore(4, || {
        become_thread(1);
        let counter = Counter::new();
        counter.add();
        let other = on_thread(2, &counter, |counter| counter.try_add() + counter.try_add());
        let mine = counter.try_add_as_owner() + counter.try_add_as_owner();
        let guard = counter.0.lock();
        assert!(counter.0.try_lock_owned().is_none(), "this thread is inside");
        drop(guard);
        let added = 1 + mine + other.join().unwrap();
        assert_eq!(*counter.0.lock(), added);
    });
}

#[test]
fn two_threads_that_revoke_and_an_owner() {
    explore(4, || {
        become_thread(1);
        let counter = Counter::new();
        counter.add();
        let others = [2, 3].map(|number| {
            on_thread(number, &counter, |counter| {
                counter.add();
                1
            })
        });
        let mine = counter.add_as_owner() + counter.add_as_owner();
        let added = 1 + mine + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
        assert_eq!(*counter.0.lock(), added);
    });
}

/// Threads 2 and 4 share a seat.
#[test]
fn a_seat_passes_on_when_its_thread_has_ended() {
    explore(3, || {
        become_thread(1);
        let counter = Counter::new();
        // It becomes the owner, and may be delayed while it enters again.
        let former = on_thread(2, &counter, |counter| {
            counter.add();
            counter.add_as_owner() + 1
        });
        let latter = on_thread(4, &counter, |counter| {
            counter.add();
            counter.add();
            counter.add_as_owner() + 2
        });
        let tried = counter.try_add();
        let added = tried + former.join().unwrap() + latter.join().unwrap();
        assert_eq!(*counter.0.lock(), added);
    });
}

#[test]
fn a_seat_that_was_passed_on_makes_an_owner() {
    explore(3, || {
        become_thread(1);
        let counter = Counter::new();
        let former = on_thread(2, &counter, |counter| {
            counter.add();
            u32::from(counter.is_mine())
        });
        assert_eq!(former.join().unwrap(), 1);
        // It may end later than it is joined, and keeps its seat until then.
        while !lock(&counter.0.mutex).seats[0].life.as_ref().is_some_and(Life::is_over) {
            thread::yield_now();
        }
        let latter = on_thread(4, &counter, |counter| {
            counter.add();
            counter.add();
            u32::from(counter.is_mine())
        });
        assert_eq!(latter.join().unwrap(), 1);
    });
}
