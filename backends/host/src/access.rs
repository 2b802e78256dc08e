//! Keeps work on the same bytes apart.
//!
//! The order of work on two streams is the program's business. On other devices a forgotten wait gives wrong values; here,
//! where kernels hold Rust slices, it would be undefined behaviour. So work that touches the same bytes never runs at the
//! same time: in which order it runs is open, that it does not overlap is not.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::memory::HostPtr;

/// Bytes that some work touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    bytes: Range<usize>,
    written: bool,
}

impl Touched {
    pub(crate) fn new(start: HostPtr, len: usize, written: bool) -> Self {
        let start = start.as_ptr().addr();
        Self { bytes: start..start + len, written }
    }
}

/// What is being touched now.
#[derive(Debug, Default)]
pub(crate) struct Access {
    running: Mutex<Vec<Touched>>,
    changed: Condvar,
}

impl Access {
    /// Runs work once nothing that conflicts with it runs. Waits for running work only, so nobody waits in a circle.
    pub(crate) fn run<T>(&self, touched: &[Touched], work: impl FnOnce() -> T) -> T {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let conflicting = |running: &mut Vec<Touched>| {
            running.iter().any(|other| touched.iter().any(|wanted| conflict(wanted, other)))
        };
        let mut running =
            self.changed.wait_while(running, conflicting).unwrap_or_else(PoisonError::into_inner);
        running.extend_from_slice(touched);
        drop(running);
        let _running = Running { access: self, touched }; // also if the work panics
        work()
    }
}

fn conflict(a: &Touched, b: &Touched) -> bool {
    (a.written || b.written) && a.bytes.start < b.bytes.end && b.bytes.start < a.bytes.end
}

struct Running<'a> {
    access: &'a Access,
    touched: &'a [Touched],
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut running = self.access.running.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in self.touched {
            if let Some(place) = running.iter().position(|other| other == gone) {
                running.swap_remove(place);
            }
        }
        self.access.changed.notify_all();
    }
}
