use std::sync::Arc;

use super::*;
use crate::sync::primitives::{UnsafeCell, explore, thread};

/// Memory that is in a place, or on its way to the driver.
struct Memory {
    place: Mutex<bool>,
    steps: InFlight,
    driver: UnsafeCell<bool>,
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(true), steps: InFlight::default(), driver: UnsafeCell::new(false) })
    }

    /// Gives the memory to the driver, if it is in its place.
    fn give_back(&self) {
        let mut place = lock(&self.place);
        if std::mem::take(&mut *place) {
            let _step = self.steps.begin();
            drop(place);
            self.driver.get();
        }
    }

    /// Looks for the memory, and finds it in its place or with the driver.
    fn find(&self) {
        if *lock(&self.place) {
            return;
        }
        self.steps.wait();
        self.driver.get();
    }
}

#[test]
fn a_thread_that_waits_finds_the_memory_where_it_went() {
    explore(4, || {
        let memory = Memory::new();
        let moved = Arc::clone(&memory);
        let mover = thread::spawn(move || moved.give_back());
        memory.find();
        mover.join().unwrap();
    });
}

#[test]
fn two_threads_wait_in_turn() {
    explore(2, || {
        let memory = Memory::new();
        let threads = [0, 1].map(|number| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || match number {
                0 => memory.give_back(),
                _ => memory.steps.wait(),
            })
        });
        memory.find();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn steps_that_begin_during_the_wait_do_not_hide_an_earlier_one() {
    explore(2, || {
        let memory = Memory::new();
        let threads = [0, 1].map(|number| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || match number {
                0 => memory.give_back(),
                _ => drop(memory.steps.begin()),
            })
        });
        memory.find();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
