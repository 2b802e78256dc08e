//! Turns of threads that take pages from the driver. Pages are taken one by one, so two threads that compete for the
//! last ones would both fail, although one of them could have been served.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::types::{DriverErrorKind, DriverResult};

/// Lets all threads take pages concurrently, except that a thread that ran out of memory while others took pages
/// retries alone.
#[derive(Default)]
pub(crate) struct Turns {
    /// Read-locked by every thread that takes pages, write-locked by one that retries.
    turn: RwLock<()>,
    /// The number of turns in progress.
    open: AtomicUsize,
    /// The number of turns ever begun.
    begun: AtomicUsize,
}

/// A turn of a thread, possibly at the same time as others.
pub(super) struct Turn<'a> {
    of: &'a Turns,
    /// The number of turns begun before it.
    before: usize,
    was_alone: bool,
    _shared: RwLockReadGuard<'a, ()>,
}

impl Turns {
    /// Takes pages, and returns how many were taken. If memory ran out while other threads were also taking pages, and
    /// none were taken, tries again alone.
    pub(super) fn take<T: Default + PartialEq>(
        &self,
        mut take: impl FnMut() -> (T, DriverResult<()>),
    ) -> (T, DriverResult<()>) {
        let turn = self.begin();
        let (taken, result) = take();
        if taken == T::default()
            && result.as_ref().is_err_and(|error| error.kind == DriverErrorKind::OutOfMemory)
            && let Some(_alone) = turn.alone()
        {
            return take();
        }
        (taken, result)
    }

    pub(super) fn begin(&self) -> Turn<'_> {
        let shared = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        let was_alone = self.open.fetch_add(1, Ordering::SeqCst) == 0;
        let before = self.begun.fetch_add(1, Ordering::SeqCst);
        Turn { of: self, before, was_alone, _shared: shared }
    }
}

impl<'a> Turn<'a> {
    /// Ends this turn. If other threads took pages during it, begins one that excludes them.
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
