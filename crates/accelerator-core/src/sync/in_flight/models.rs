use std::sync::Arc;

use super::*;
use crate::sync::primitives::{Exclusive, explore, thread};

/// Memory that is in a place, or on its way to the driver.
struct Memory {
    place: Mutex<bool>,
    steps: InFlight,
    driver: Exclusive,
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(true), steps: InFlight::default(), driver: Exclusive::default() })
    }

    /// Gives the memory to the driver, if it is in its place.
    fn give_back(&self) {
        let mut place = lock(&self.place);
        if std::mem::take(&mut *place) {
            let _step = self.steps.begin();
            drop(place);
            self.driver.access();
        }
    }

    /// Looks for the memory, and finds it in its place or with the driver.
    fn find(&self) {
        if *lock(&self.place) {
            return;
        }
        self.steps.wait();
        self.driver.access();
    }
}

#[test]
fn a_thread_that_waits_finds_the_memory_where_it_went() {
    explore(8, || {
        let memory = Memory::new();
        let moved = Arc::clone(&memory);
        let mover = thread::spawn(move || moved.give_back());
        memory.find();
        mover.join().unwrap();
    });
}

#[test]
fn two_threads_wait_in_turn() {
    explore(4, || {
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
