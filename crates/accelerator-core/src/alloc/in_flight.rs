//! Steps that one thread is in the middle of and another may have to wait for.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// Counts steps during which memory is in no book: between the books and the driver, or between two books. Who needs
/// memory waits for them, instead of finding it nowhere.
#[derive(Default)]
pub(super) struct InFlight {
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Default)]
struct Counts {
    begun: u64,
    ended: u64,
}

/// One step; dropped, also by a panic, it has ended.
#[must_use]
pub(super) struct Step<'a>(&'a InFlight);

impl InFlight {
    /// A step begins. Called before the lock is let go under which the memory left its book.
    pub(super) fn begin(&self) -> Step<'_> {
        lock(&self.counts).begun += 1;
        Step(self)
    }

    /// Waits until as many have ended as had begun by now.
    pub(super) fn wait(&self) {
        let counts = lock(&self.counts);
        let begun = counts.begun;
        let waited = self.ended.wait_while(counts, |counts| counts.ended < begun);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        lock(&self.0.counts).ended += 1;
        self.0.ended.notify_all();
    }
}
