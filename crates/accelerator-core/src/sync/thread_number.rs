//! Numbers of threads, and whether a thread is alive.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static LIFE: Life = Life(Arc::new(()));
}

/// Dropped when its thread ends.
struct Life(Arc<()>);

impl Drop for Life {
    fn drop(&mut self) {
        // While its other thread-local variables are dropped, the thread counts as another one, since its old number
        // counts as dead.
        NUMBER.set(next());
    }
}

/// The number of the calling thread, from 1. No other thread ever gets it.
#[inline]
pub(super) fn thread_number() -> u64 {
    match NUMBER.get() {
        0 => first(),
        number => number,
    }
}

/// The number of the calling thread; 0 if it has none yet, which is no thread's number.
#[inline(always)]
pub(super) fn known_thread_number() -> u64 {
    NUMBER.get()
}

/// A handle that is alive as long as the thread has this number; `None` if the thread is ending.
pub(super) fn thread_life() -> Option<Weak<()>> {
    LIFE.try_with(|life| Arc::downgrade(&life.0)).ok()
}

#[cold]
fn first() -> u64 {
    let number = next();
    NUMBER.set(number);
    number
}

fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own() {
        let mine = thread_number();
        let others: Vec<u64> = (0..4).filter_map(|_| thread::spawn(thread_number).join().ok()).collect();
        assert_eq!(thread_number(), mine);
        for (index, number) in others.iter().enumerate() {
            assert!(*number != mine && !others[..index].contains(number), "{mine}, {others:?}");
        }
        assert_eq!(others.len(), 4);
    }

    #[test]
    fn life_ends_with_the_thread_and_its_number_before() {
        struct Late(std::sync::mpsc::Sender<(u64, bool)>, Cell<u64>);
        impl Drop for Late {
            fn drop(&mut self) {
                let _ = self.0.send((self.1.get(), thread_number() == self.1.get() && thread_life().is_none()));
            }
        }
        thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
        let (sender, receiver) = std::sync::mpsc::channel();
        let spawned = thread::spawn(move || {
            // Destructors run in the order of registration on some systems and in the reverse order on others.
            let life = thread_life();
            LATE.set(Some(Late(sender, Cell::new(thread_number()))));
            assert!(life.as_ref().is_some_and(|life| life.upgrade().is_some()));
            life
        });
        let life = spawned.join().unwrap();
        assert!(life.is_some_and(|life| life.upgrade().is_none()));
        let (number, kept_after_life) = receiver.recv().unwrap();
        assert!(number > 0 && !kept_after_life);
    }
}
