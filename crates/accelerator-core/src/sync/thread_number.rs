//! Numbers of threads, and whether a thread is alive.

use std::cell::Cell;
use std::sync::Arc;

use super::primitives::atomic::{AtomicBool, AtomicU64, Ordering};
use super::primitives::{shared_static, thread_static};

thread_static! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static LIFE: EndsLife = EndsLife(Life(Arc::new(AtomicBool::new(true))));
}

/// Whether a thread still has a number.
#[derive(Clone, Debug)]
pub(super) struct Life(Arc<AtomicBool>);

impl Life {
    /// Everything that the thread did under its number happens before a call that returns true.
    pub(super) fn is_over(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

/// Dropped when its thread ends.
struct EndsLife(Life);

impl Drop for EndsLife {
    fn drop(&mut self) {
        // While its other thread-local variables are dropped, the thread counts as another one, since its old number
        // counts as dead.
        let _ = NUMBER.try_with(|number| number.set(next()));
        self.0.0.store(false, Ordering::Release);
    }
}

/// The number of the calling thread, from 1. No other thread ever gets it.
#[inline]
pub(super) fn thread_number() -> u64 {
    match known_thread_number() {
        0 => first(),
        number => number,
    }
}

/// The number of the calling thread; 0 if it has none yet, which is no thread's number.
#[inline(always)]
pub(super) fn known_thread_number() -> u64 {
    NUMBER.with(Cell::get)
}

/// The life of the thread under this number; `None` if the thread is ending.
pub(super) fn thread_life() -> Option<Life> {
    LIFE.try_with(|life| life.0.clone()).ok()
}

#[cold]
fn first() -> u64 {
    let number = next();
    NUMBER.with(|own| own.set(number));
    number
}

fn next() -> u64 {
    shared_static! {
        static LAST: AtomicU64 = AtomicU64::new(0);
    }
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
#[cfg(loom)]
pub(super) mod models;

#[cfg(test)]
#[cfg(not(loom))]
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
            assert!(life.as_ref().is_some_and(|life| !life.is_over()));
            life
        });
        let life = spawned.join().unwrap();
        assert!(life.is_some_and(|life| life.is_over()));
        let (number, kept_after_life) = receiver.recv().unwrap();
        assert!(number > 0 && !kept_after_life);
    }
}
