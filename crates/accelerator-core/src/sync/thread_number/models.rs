use std::sync::Arc;

use super::*;
use crate::sync::primitives::{Exclusive, Mutex, explore, lock, thread};

/// Gives the calling thread, which has no number yet, this one. In a model, numbers otherwise depend on the schedule,
/// and with them the seats in an owned lock. Must not be used together with [`thread_number`] on another thread that
/// has none.
pub(in crate::sync) fn become_thread(number: u64) {
    assert_eq!(known_thread_number(), 0);
    NUMBER.with(|own| own.set(number));
}

#[test]
fn what_a_thread_did_happens_before_its_life_is_seen_to_be_over() {
    explore(3, || {
        let work = Arc::new(Exclusive::default());
        let told = Arc::new(Mutex::new(None));
        let other = thread::spawn({
            let (work, told) = (Arc::clone(&work), Arc::clone(&told));
            move || {
                *lock(&told) = thread_life();
                work.access(); // after the other thread was told of the life
            }
        });
        let life: Option<Life> = lock(&told).clone();
        if life.is_some_and(|life| life.is_over()) {
            work.access();
        }
        other.join().unwrap();
    });
}

#[test]
fn no_two_threads_have_the_same_number() {
    explore(3, || {
        let others = [0; 2].map(|_| thread::spawn(|| (thread_number(), thread_number())));
        let mine = thread_number();
        let [(first, again), (second, _)] = others.map(|other| other.join().unwrap());
        assert_eq!(first, again);
        assert!(first != second && first != mine && second != mine, "{first}, {second}, {mine}");
    });
}
