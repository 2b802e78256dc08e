//! Keeps work on the same bytes apart.
//!
//! The program orders the work of two streams. On other devices a forgotten wait gives wrong values. Here, where
//! kernels hold Rust slices, it would be undefined behaviour. So work that touches the same bytes never runs at the
//! same time. The order in which it runs is still open.
//!
//! Memory can be mapped at several addresses, so bytes are identified by the memory behind their addresses.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use accelerator_core::backend_kit::{Accounting, lock, wait_while};

use crate::memory::HostPtr;
#[cfg(target_os = "linux")]
use crate::virtual_memory::Pager;

/// An address range that some work touches.
#[derive(Clone, Debug)]
pub struct Touched {
    pub(crate) addresses: Range<usize>,
    written: bool,
}

impl Touched {
    /// Makes the range of `len` bytes from `start`, which the work either writes or only reads.
    pub fn new(start: HostPtr, len: usize, written: bool) -> Self {
        let start = start.as_ptr().addr();
        Self { addresses: start..start.saturating_add(len), written }
    }

    /// The bytes behind some of these addresses.
    pub(crate) fn bytes(&self, memory: Backing, range: Range<usize>) -> Bytes {
        Bytes { memory, range, written: self.written }
    }
}

/// Bytes that some work touches. The same bytes always have the same description, whatever their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    memory: Backing,
    range: Range<usize>,
    written: bool,
}

impl Bytes {
    /// Appends `more` if it continues this range in the same memory. Returns whether it did.
    #[cfg(target_os = "linux")]
    pub(crate) fn extend(&mut self, more: &Self) -> bool {
        let comes_behind = self.memory == more.memory && self.range.end == more.range.start;
        if comes_behind {
            self.range.end = more.range.end;
        }
        comes_behind
    }
}

/// The memory that a range of bytes is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Memory with one address: the range holds addresses.
    Private,
    /// A file, by its number, which may be mapped several times: the range holds offsets.
    #[cfg(target_os = "linux")]
    File(u64),
}

/// The bytes that running work touches.
#[derive(Debug)]
pub(crate) struct Access {
    #[cfg(target_os = "linux")]
    pager: Option<Pager>,
    running: Mutex<Vec<Bytes>>,
    changed: Condvar,
}

impl Access {
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "nothing else maps memory"))]
    pub(crate) fn new(accounting: &Arc<Accounting>, is_inherited: bool) -> Self {
        Self {
            // Memory that children inherit has one address.
            #[cfg(target_os = "linux")]
            pager: if is_inherited { None } else { Pager::new(Arc::clone(accounting)) },
            running: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn pager(&self) -> Option<&Pager> {
        self.pager.as_ref()
    }

    /// Returns the bytes behind these addresses. The memory stays there until the work that touches it is done.
    pub(crate) fn behind(&self, touched: &[Touched]) -> Vec<Bytes> {
        let mut bytes = Vec::with_capacity(touched.len());
        for touched in touched.iter().filter(|touched| !touched.addresses.is_empty()) {
            #[cfg(target_os = "linux")]
            if let Some(pager) = &self.pager {
                pager.behind(touched, &mut bytes);
                continue;
            }
            bytes.push(touched.bytes(Backing::Private, touched.addresses.clone()));
        }
        bytes
    }

    /// Runs work as soon as no conflicting work is running. Waits only for running work, so it cannot deadlock.
    pub(crate) fn run<T>(&self, touched: &[Bytes], work: impl FnOnce() -> T) -> T {
        let conflicting =
            |running: &mut Vec<Bytes>| running.iter().any(|other| touched.iter().any(|wanted| conflict(wanted, other)));
        let mut running = wait_while(&self.changed, lock(&self.running), conflicting);
        running.extend_from_slice(touched);
        drop(running);
        let _running = Running { access: self, touched }; // also dropped if the work panics
        work()
    }
}

fn conflict(a: &Bytes, b: &Bytes) -> bool {
    (a.written || b.written) && a.memory == b.memory && a.range.start < b.range.end && b.range.start < a.range.end
}

struct Running<'a> {
    access: &'a Access,
    touched: &'a [Bytes],
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut running = lock(&self.access.running);
        for gone in self.touched {
            if let Some(place) = running.iter().position(|other| other == gone) {
                running.swap_remove(place);
            }
        }
        self.access.changed.notify_all();
    }
}
