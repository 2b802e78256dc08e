//! Threads that take pages from the driver. Pages come one by one, so two that take the last ones from each other would both
//! fail, where one could have been served.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Lets all take pages at once, and those alone who ran out beside others.
#[derive(Default)]
pub(super) struct Turns {
    /// Shared by all who take, held alone by one who has failed.
    turn: RwLock<()>,
    /// How many are taking.
    open: AtomicUsize,
    /// How many have ever begun.
    begun: AtomicUsize,
}

/// A thread takes pages, perhaps beside others.
pub(super) struct Turn<'a> {
    of: &'a Turns,
    /// How many had begun before.
    before: usize,
    was_alone: bool,
    _shared: RwLockReadGuard<'a, ()>,
}

impl Turns {
    pub(super) fn begin(&self) -> Turn<'_> {
        let shared = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        let was_alone = self.open.fetch_add(1, Ordering::SeqCst) == 0;
        let before = self.begun.fetch_add(1, Ordering::SeqCst);
        Turn { of: self, before, was_alone, _shared: shared }
    }
}

impl<'a> Turn<'a> {
    /// Ends this turn; where others were taking meanwhile, one begins that keeps them out.
    pub(super) fn alone(self) -> Option<RwLockWriteGuard<'a, ()>> {
        let turns = self.of;
        let none_came = turns.begun.load(Ordering::SeqCst) == self.before.wrapping_add(1);
        let was_alone = self.was_alone && none_came;
        drop(self);
        (!was_alone).then(|| turns.turn.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.open.fetch_sub(1, Ordering::SeqCst);
    }
}
