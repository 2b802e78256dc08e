use super::*;
use crate::sync::primitives::atomic::{AtomicUsize, Ordering};
use crate::sync::primitives::{Mutex, explore, lock, thread};

/// A value that takes a while to go, as one does that tells another process.
struct Value(usize);

impl Drop for Value {
    fn drop(&mut self) {
        thread::yield_now();
    }
}

#[derive(Default)]
struct Shared {
    in_use: Mutex<InUse<u8, Value>>,
    made: AtomicUsize,
    /// The numbers of the values that threads have now. No part of the model: it is never waited for.
    held: std::sync::Mutex<Vec<usize>>,
}

impl Shared {
    fn use_once(&self) {
        let mut in_use = lock(&self.in_use);
        let make = || Ok::<_, ()>(Arc::new(Value(self.made.fetch_add(1, Ordering::Relaxed))));
        let value = in_use.get_or_make(0, make).unwrap();
        self.held.lock().unwrap().push(value.0);
        drop(in_use);
        thread::yield_now();
        let mut held = self.held.lock().unwrap();
        assert!(held.iter().all(|other| *other == value.0), "two values of one key are in use: {held:?}");
        let own = held.iter().position(|other| *other == value.0).unwrap();
        held.swap_remove(own);
        drop(held);
        drop(value);
        lock(&self.in_use).forget_unused();
    }
}

#[test]
fn all_users_of_a_key_at_one_time_have_the_same_value() {
    explore(5, || {
        let shared = Arc::new(Shared::default());
        let others = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.use_once())
        });
        shared.use_once();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(lock(&shared.in_use).get(&0).is_none());
    });
}
