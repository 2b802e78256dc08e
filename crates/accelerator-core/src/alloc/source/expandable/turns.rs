//! Threads that take pages from the driver. Pages come one by one, so two that take the last ones from each other would both
//! fail, where one could have been served.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

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

impl Turns {
    /// Takes; and where that `ran_out` while others were taking, too, once more without them.
    pub(super) fn take<T>(&self, mut take: impl FnMut() -> T, ran_out: impl Fn(&T) -> bool) -> T {
        let shared = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        let others = self.open.fetch_add(1, Ordering::SeqCst);
        let begun = self.begun.fetch_add(1, Ordering::SeqCst);
        let taken = take();
        let was_alone = others == 0 && self.begun.load(Ordering::SeqCst) == begun.wrapping_add(1);
        self.open.fetch_sub(1, Ordering::SeqCst);
        drop(shared);
        if was_alone || !ran_out(&taken) {
            return taken;
        }
        let _alone = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        take()
    }
}
