//! Streams that are held and released by hand: the clock of the simulated driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where one stream stands. Instant unless held; on a held stream events wait for the release.
///
/// A synchronise completes what was recorded so far, and the stream stays held for what follows.
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

    /// A point behind everything so far; `None`: the stream is not held, so it is reached already.
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

    /// Completes it and what lies before it on its timeline.
    pub(crate) fn complete(&self) {
        self.timeline.complete(self.number);
    }
}
