//! Host memory of the driver inside: counted, limited, and poisoned when it is given back.
#![allow(unsafe_code)] // `Backend::dealloc_host`, and memory in quarantine

use std::num::NonZeroU64;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use accelerator_core::{Backend, DriverErrorKind, DriverResult};

use super::budget::Budget;
use super::quarantine::{POISON, UseAfterFree};
use crate::calls::{Call, failure};

/// The host memory that was taken from the driver inside, by address.
#[derive(Debug)]
pub(super) struct HostMemory {
    budget: Budget<usize>,
    /// Memory that its owner gave back and the driver has not got yet; `None`: there is no quarantine.
    kept: Mutex<Option<Vec<(usize, NonZeroU64)>>>,
}

impl HostMemory {
    pub(super) fn new() -> Self {
        Self { budget: Budget::new(None), kept: Mutex::new(None) }
    }

    pub(super) fn budget(&self) -> &Budget<usize> {
        &self.budget
    }

    pub(super) fn alloc<B: Backend>(&self, inner: &B, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        if !self.budget.reserve(len) {
            return Err(failure(Call::AllocHost, DriverErrorKind::OutOfMemory, "the host's limit"));
        }
        let taken = inner.alloc_host(len);
        match &taken {
            Ok(start) => self.budget.enter(start.as_ptr().expose_provenance(), len),
            Err(_) => self.budget.refund(len),
        }
        taken
    }

    /// Takes an allocation out, which was given back. Whether it was there: if not, that is counted.
    pub(super) fn remove(&self, start: NonNull<u8>, len: NonZeroU64) -> bool {
        self.budget.remove(start.as_ptr().addr(), len)
    }

    /// Gives memory that was taken out to the driver, or to the quarantine.
    ///
    /// # Safety
    /// * Nothing uses it any more.
    pub(super) unsafe fn dealloc<B: Backend>(&self, inner: &B, start: NonNull<u8>, len: NonZeroU64) {
        let keeps = match self.kept().as_mut() {
            Some(kept) => {
                // SAFETY: The memory is allocated still, and nobody else's.
                unsafe { start.write_bytes(POISON, len.get() as usize) };
                kept.push((start.as_ptr().expose_provenance(), len));
                true
            }
            None => false,
        };
        if !keeps {
            // SAFETY: One allocation of the driver inside, which the caller gives back.
            unsafe { inner.dealloc_host(start, len) };
        }
        self.budget.refund(len);
    }

    pub(super) fn start_quarantine(&self) {
        self.kept().get_or_insert_default();
    }

    /// Where memory in quarantine was written to.
    pub(super) fn check_quarantine(&self) -> Vec<UseAfterFree> {
        let kept = self.kept();
        let changed = kept.iter().flatten().filter_map(|(start, len)| {
            let start: *const u8 = ptr::with_exposed_provenance(*start);
            // SAFETY: The memory is allocated still and initialised, and nobody has it but the quarantine.
            let bytes = unsafe { std::slice::from_raw_parts(start, len.get() as usize) };
            let place = bytes.iter().position(|byte| *byte != POISON)?;
            Some(UseAfterFree { address: (start.addr() + place) as u64 })
        });
        changed.collect()
    }

    /// Ends the quarantine and gives the memory back.
    pub(super) fn end_quarantine<B: Backend>(&self, inner: &B) {
        let kept = self.kept().take(); // ahead of the loop, which would keep the lock
        for (start, len) in kept.into_iter().flatten() {
            if let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut(start)) {
                // SAFETY: Taken from a caller of `dealloc_host`, whose promise it is that nothing uses it.
                unsafe { inner.dealloc_host(start, len) };
            }
        }
    }

    /// Gives everything back, whoever holds it.
    ///
    /// # Safety
    /// * Nothing uses any of it any more, and its owners do not give it back.
    pub(super) unsafe fn reclaim<B: Backend>(&self, inner: &B) {
        self.end_quarantine(inner);
        for (start, len) in self.budget.live() {
            if let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut(start))
                && self.remove(start, len)
            {
                // SAFETY: The caller promises that nothing uses it.
                unsafe { self.dealloc(inner, start, len) };
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Vec<(usize, NonZeroU64)>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The addresses of host memory.
pub(super) fn addresses(start: NonNull<u8>, len: NonZeroU64) -> Range<usize> {
    let start = start.as_ptr().addr();
    start..start + len.get() as usize
}
