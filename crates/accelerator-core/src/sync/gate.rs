//! A gate that a thread can close, after waiting for the threads inside.

use super::primitives::atomic::{AtomicBool, Ordering};
use super::{InFlight, Step};

/// Lets threads use something until one closes it.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    inside: InFlight,
}

impl Gate {
    /// Returns a step inside, during which nobody closes the gate; `None` if it is closed.
    pub(crate) fn enter(&self) -> Option<Step<'_>> {
        // The step begins first: a thread that closes the gate then either sees it, or is seen here.
        let step = self.inside.begin();
        (!self.is_closed()).then_some(step)
    }

    /// Closes the gate, and waits until no thread is inside.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.inside.wait();
    }

    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let (gate, inside, entered) = (Gate::default(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while entered.load(Ordering::SeqCst) < 3000 {
                        let Some(_step) = gate.enter() else { continue };
                        inside.fetch_add(1, Ordering::SeqCst);
                        entered.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..100 {
                gate.close();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                gate.open();
            }
        });
        gate.close();
        assert!(gate.enter().is_none() && gate.is_closed());
        gate.open();
        assert!(gate.enter().is_some());
    }
}
