//! Keeps work on the same bytes apart.
//!
//! The order of work on two streams is the program's business. On other devices a forgotten wait gives wrong values; here,
//! where kernels hold Rust slices, it would be undefined behaviour. So work that touches the same bytes never runs at the
//! same time: in which order it runs is open, that it does not overlap is not.
//!
//! Memory can be mapped at several addresses, so bytes are told apart by what lies behind their addresses.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::memory::HostPtr;

/// Addresses that some work touches.
#[derive(Clone, Debug)]
pub struct Touched {
    pub(crate) addresses: Range<usize>,
    written: bool,
}

impl Touched {
    /// So many bytes from an address on, to be written or only read.
    pub fn new(start: HostPtr, len: usize, written: bool) -> Self {
        let start = start.as_ptr().addr();
        Self { addresses: start..start + len, written }
    }

    /// Bytes behind some of the addresses.
    pub(crate) fn bytes(&self, memory: Backing, range: Range<usize>) -> Bytes {
        Bytes { memory, range, written: self.written }
    }
}

/// Bytes that some work touches, each of which has this one name only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    memory: Backing,
    range: Range<usize>,
    written: bool,
}

impl Bytes {
    /// Takes in what comes right behind, in the same memory. Whether it does.
    #[cfg(target_os = "linux")]
    pub(crate) fn extend(&mut self, more: &Self) -> bool {
        let comes_behind = self.memory == more.memory && self.range.end == more.range.start;
        if comes_behind {
            self.range.end = more.range.end;
        }
        comes_behind
    }
}

/// What a range of bytes is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Memory with one address: the range is of addresses.
    Private,
    /// The file of the device, which may be mapped several times: the range is of offsets.
    #[cfg(target_os = "linux")]
    File,
}

/// What is being touched now.
#[derive(Debug, Default)]
pub(crate) struct Access {
    running: Mutex<Vec<Bytes>>,
    changed: Condvar,
}

impl Access {
    /// Runs work once nothing that conflicts with it runs. Waits for running work only, so nobody waits in a circle.
    pub(crate) fn run<T>(&self, touched: &[Bytes], work: impl FnOnce() -> T) -> T {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let conflicting = |running: &mut Vec<Bytes>| {
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

fn conflict(a: &Bytes, b: &Bytes) -> bool {
    (a.written || b.written)
        && a.memory == b.memory
        && a.range.start < b.range.end
        && b.range.start < a.range.end
}

struct Running<'a> {
    access: &'a Access,
    touched: &'a [Bytes],
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
