//! Steps in progress that other threads may have to wait for.

use super::primitives::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::primitives::{Condvar, Mutex, lock, wait_while};

/// Tracks steps during which memory is in no arena and no queue: it is on its way to the driver, or from one place to
/// another. A thread that needs memory waits for these steps, since it would miss that memory otherwise.
///
/// Steps begin in one of two phases. A thread that waits switches the phase for new steps, and waits until the old
/// phase has none. So later steps do not delay it.
#[derive(Default)]
pub(crate) struct InFlight {
    /// The lowest bit is the phase in which steps begin.
    phase: AtomicUsize,
    /// The number of steps of each phase that have not ended.
    open: [AtomicUsize; 2],
    /// Held by the thread that waits. Other threads wait for their turn.
    turn: Mutex<()>,
    /// Whether a thread waits. Mostly none does, and a wake-up is a system call even then.
    waiting: AtomicBool,
    ending: Mutex<()>,
    ended: Condvar,
}

/// One step. It ends when this is dropped, also by a panic.
#[must_use]
pub(crate) struct Step<'a> {
    of: &'a InFlight,
    phase: usize,
}

impl InFlight {
    /// Begins a step. The caller still holds the lock under which it took the memory out.
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

    /// Waits until all steps that have begun by now have ended.
    pub(crate) fn wait(&self) {
        let _turn = lock(&self.turn);
        self.waiting.store(true, Ordering::SeqCst);
        let phase = self.phase.fetch_add(1, Ordering::SeqCst) % 2;
        let are_open = |_: &mut ()| self.open[phase].load(Ordering::SeqCst) > 0;
        drop(wait_while(&self.ended, lock(&self.ending), are_open));
        self.waiting.store(false, Ordering::SeqCst);
    }

    /// Wakes the thread that waits: it either checked before this and sleeps, or checks after it.
    #[cold]
    fn wake(&self) {
        drop(lock(&self.ending));
        self.ended.notify_one();
    }
}

impl Drop for Step<'_> {
    #[inline]
    fn drop(&mut self) {
        self.of.open[self.phase].fetch_sub(1, Ordering::SeqCst);
        if self.of.waiting.load(Ordering::SeqCst) {
            self.of.wake();
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;

#[cfg(test)]
#[cfg(not(loom))]
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
            thread::sleep(Duration::from_millis(50)); // the thread waits by then
            drop(steps.begin());
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            ended.store(true, Ordering::SeqCst);
            drop(earlier);
            assert!(waiting.join().is_ok_and(|ended| ended));
        });
    }
}
