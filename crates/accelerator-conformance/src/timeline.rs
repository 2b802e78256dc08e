//! Streams that are held and released by hand: the clock of the simulated driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of one stream. It runs instantly unless held; events on a held stream wait for its release.
///
/// A synchronize completes everything recorded so far; the stream stays held for later work.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    held: AtomicBool,
    recorded: AtomicU64,
    completed: AtomicU64,
}

/// A point on a timeline.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    timeline: Arc<Timeline>,
    number: u64,
}

impl Timeline {
    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    pub(crate) fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
        self.complete(self.recorded.load(Ordering::SeqCst));
    }

    /// Completes everything recorded so far.
    pub(crate) fn synchronize(&self) {
        self.complete(self.recorded.load(Ordering::SeqCst));
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.held.load(Ordering::SeqCst)
    }

    /// Returns a point after everything so far, or `None` if the stream is not held, so that the point is already
    /// reached.
    pub(crate) fn record(self: &Arc<Self>) -> Option<Ticket> {
        if self.is_idle() {
            return None;
        }
        let number = self.recorded.fetch_add(1, Ordering::SeqCst) + 1;
        Some(Ticket { timeline: Arc::clone(self), number })
    }

    fn complete(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::SeqCst);
    }
}

impl Ticket {
    pub(crate) fn is_complete(&self) -> bool {
        self.timeline.completed.load(Ordering::SeqCst) >= self.number
    }

    /// Completes this point and all earlier ones on its timeline.
    pub(crate) fn complete(&self) {
        self.timeline.complete(self.number);
    }
}
