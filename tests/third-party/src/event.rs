use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use accelerator_core::backend_kit::{lock, wait_while};

/// A point in the work of a stream.
#[derive(Debug, Default)]
pub(crate) struct Point {
    reached: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Point {
    pub(crate) fn reach(&self) {
        *lock(&self.reached) = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Returns when it was reached.
    pub(crate) fn reached(&self) -> Option<Instant> {
        *lock(&self.reached)
    }

    pub(crate) fn wait(&self) {
        drop(wait_while(&self.changed, lock(&self.reached), |reached| reached.is_none()));
    }
}

/// An event: the point where it was recorded last.
#[derive(Debug, Default)]
pub struct SampleEvent(Mutex<Option<Arc<Point>>>);

impl SampleEvent {
    pub(crate) fn point(&self) -> Option<Arc<Point>> {
        lock(&self.0).clone()
    }

    pub(crate) fn set(&self, point: Arc<Point>) {
        *lock(&self.0) = Some(point);
    }
}
