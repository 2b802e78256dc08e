//! Segments on their way back to the driver.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// Counts the segments that are out of the books and not yet with the driver, so that who needs memory can wait for them
/// instead of finding them nowhere.
#[derive(Default)]
pub(super) struct Returning {
    counts: Mutex<Counts>,
    arrived: Condvar,
}

#[derive(Default)]
struct Counts {
    left: u64,
    arrived: u64,
}

impl Returning {
    /// So many have left the books. Called before the lock of their arena is let go.
    pub(super) fn leave(&self, segments: usize) {
        lock(&self.counts).left += segments as u64;
    }

    /// One is with the driver.
    pub(super) fn arrive(&self) {
        lock(&self.counts).arrived += 1;
        self.arrived.notify_all();
    }

    /// Waits until as many have arrived as had left by now.
    pub(super) fn wait(&self) {
        let counts = lock(&self.counts);
        let left = counts.left;
        let waited = self.arrived.wait_while(counts, |counts| counts.arrived < left);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
