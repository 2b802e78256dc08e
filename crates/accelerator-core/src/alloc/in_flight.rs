//! Steps that one thread is in the middle of and another may have to wait for.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// Knows the steps during which memory is in no book: between the books and the driver, or between two books. Who needs
/// memory waits for them, instead of finding it nowhere.
#[derive(Default)]
pub(crate) struct InFlight {
    steps: Mutex<Steps>,
    ended: Condvar,
}

#[derive(Default)]
struct Steps {
    begun: u64,
    /// The numbers of those that have not ended, the oldest first.
    open: Vec<u64>,
}

/// One step; dropped, also by a panic, it has ended.
#[must_use]
pub(crate) struct Step<'a> {
    of: &'a InFlight,
    number: u64,
}

impl InFlight {
    /// A step begins. Called before the lock is let go under which the memory left its book.
    pub(crate) fn begin(&self) -> Step<'_> {
        let mut steps = lock(&self.steps);
        let number = steps.begun;
        steps.begun += 1;
        steps.open.push(number);
        Step { of: self, number }
    }

    /// Waits until all have ended that had begun by now.
    pub(crate) fn wait(&self) {
        let steps = lock(&self.steps);
        let later = steps.begun;
        let waited =
            self.ended.wait_while(steps, |steps| steps.open.first().is_some_and(|oldest| *oldest < later));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        lock(&self.of.steps).open.retain(|open| *open != self.number);
        self.of.ended.notify_all();
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
