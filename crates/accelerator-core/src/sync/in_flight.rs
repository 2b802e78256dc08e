//! Steps that one thread is in the middle of and another may have to wait for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// Knows the steps during which no arena and no queue has some memory: it is on its way to the driver, or from one to the other.
/// A thread that needs memory waits for them, instead of finding it nowhere.
///
/// Steps begin in one of two phases. A thread that waits turns to the other phase, in which steps begin from then on, and waits
/// until the first has none; so later steps do not keep it waiting.
#[derive(Default)]
pub(crate) struct InFlight {
    /// The lowest bit: in which of the two steps begin.
    phase: AtomicUsize,
    /// Steps of each that have not ended.
    open: [AtomicUsize; 2],
    /// Held by the one that waits. Others wait for their turn.
    turn: Mutex<()>,
    /// Whether one does: mostly nobody, and to wake nobody is a system call too.
    waiting: AtomicBool,
    ending: Mutex<()>,
    ended: Condvar,
}

/// One step; dropped, also by a panic, it has ended.
#[must_use]
pub(crate) struct Step<'a> {
    of: &'a InFlight,
    phase: usize,
}

impl InFlight {
    /// A step begins. Called before the lock is let go under which the memory was taken out.
    #[inline]
    pub(crate) fn begin(&self) -> Step<'_> {
        loop {
            let phase = self.phase.load(Ordering::SeqCst) % 2;
            self.open[phase].fetch_add(1, Ordering::SeqCst);
            let step = Step { of: self, phase };
            if self.phase.load(Ordering::SeqCst) % 2 == phase {
                return step;
            }
        }
    }

    /// Waits until all have ended that had begun by now.
    pub(crate) fn wait(&self) {
        let _turn = lock(&self.turn);
        self.waiting.store(true, Ordering::SeqCst);
        let phase = self.phase.fetch_add(1, Ordering::SeqCst) % 2;
        let are_open = |_: &mut ()| self.open[phase].load(Ordering::SeqCst) > 0;
        let waited = self.ended.wait_while(lock(&self.ending), are_open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.waiting.store(false, Ordering::SeqCst);
    }
}

impl Drop for Step<'_> {
    #[inline]
    fn drop(&mut self) {
        self.of.open[self.phase].fetch_sub(1, Ordering::SeqCst);
        if self.of.waiting.load(Ordering::SeqCst) {
            // Whoever waits has looked before this, and sleeps, or looks after it.
            drop(lock(&self.of.ending));
            self.of.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_later_step_does_not_end_the_wait_for_an_earlier_one() {
        let (steps, ended) = (InFlight::default(), AtomicBool::new(false));
        let earlier = steps.begin();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                steps.wait();
                ended.load(Ordering::SeqCst)
            });
            thread::sleep(Duration::from_millis(50)); // it waits by then
            drop(steps.begin());
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            ended.store(true, Ordering::SeqCst);
            drop(earlier);
            assert!(waiting.join().is_ok_and(|ended| ended));
        });
    }
}
