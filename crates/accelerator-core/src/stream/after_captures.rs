//! What waits for the end of captures.

#[cfg(test)]
#[cfg(loom)]
mod models;

use super::CaptureCount;
use crate::sync::primitives::{Mutex, lock};

/// Something to do that returns whether it is done. If it is not, a stream captures that it would have to wait for.
type Attempt = Box<dyn FnMut() -> bool + Send>;

/// What waits for the end of captures.
#[derive(Default)]
pub(crate) struct AfterCaptures(Mutex<Vec<Attempt>>);

impl AfterCaptures {
    /// Does something now, or else when a capture ends, or with the next such thing.
    pub(crate) fn add(&self, captures: &CaptureCount, mut attempt: impl FnMut() -> bool + Send + 'static) {
        if !attempt() {
            lock(&self.0).push(Box::new(attempt));
        }
        self.capture_ended(captures);
    }

    /// Does what can be done now.
    pub(crate) fn capture_ended(&self, captures: &CaptureCount) {
        loop {
            let before = captures.read();
            let mut waiting = std::mem::take(&mut *lock(&self.0)); // done without the lock
            waiting.retain_mut(|attempt| !attempt());
            lock(&self.0).extend(waiting);
            // Otherwise a capture has ended meanwhile, whose thread did not find what was taken out here.
            if captures.read() == before {
                break;
            }
        }
    }
}
