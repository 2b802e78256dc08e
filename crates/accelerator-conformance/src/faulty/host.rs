//! Host memory of the inner driver: counted, limited, and poisoned when it is freed.
#![allow(unsafe_code)] // `Backend::dealloc_host`, and memory in quarantine

use std::num::NonZeroU64;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, DriverErrorKind, DriverResult};

use super::budget::Budget;
use super::quarantine::{POISON, UseAfterFree};
use crate::calls::{Call, failure};

/// The host memory that was taken from the inner driver, by address.
#[derive(Debug)]
pub(super) struct HostMemory {
    budget: Budget<usize>,
    /// Memory that its owner has freed but the driver has not received yet; `None` without a quarantine.
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
            return Err(failure(Call::AllocHost, DriverErrorKind::OutOfMemory, "the host's limit is reached"));
        }
        let taken = inner.alloc_host(len);
        match &taken {
            Ok(start) => self.budget.enter(start.as_ptr().expose_provenance(), len),
            Err(_) => self.budget.refund(len),
        }
        taken
    }

    /// Removes an allocation that is being freed. Returns whether it was there; if not, counts a misuse.
    pub(super) fn remove(&self, start: NonNull<u8>, len: NonZeroU64) -> bool {
        self.budget.remove(start.as_ptr().addr(), len)
    }

    /// Passes removed memory to the driver or to the quarantine.
    ///
    /// # Safety
    /// * Nothing uses the memory any more.
    pub(super) unsafe fn dealloc<B: Backend>(&self, inner: &B, start: NonNull<u8>, len: NonZeroU64) {
        let keeps = match self.kept().as_mut() {
            Some(kept) => {
                // SAFETY: The memory is still allocated, and only this function uses it.
                unsafe { start.write_bytes(POISON, len.get() as usize) };
                kept.push((start.as_ptr().expose_provenance(), len));
                true
            }
            None => false,
        };
        if !keeps {
            // SAFETY: It is one allocation of the inner driver, which the caller gives up.
            unsafe { inner.dealloc_host(start, len) };
        }
        self.budget.refund(len);
    }

    pub(super) fn start_quarantine(&self) {
        self.kept().get_or_insert_default();
    }

    /// Returns where memory in quarantine was written to.
    pub(super) fn check_quarantine(&self) -> Vec<UseAfterFree> {
        let kept = self.kept();
        let changed = kept.iter().flatten().filter_map(|(start, len)| {
            let start: *const u8 = ptr::with_exposed_provenance(*start);
            // SAFETY: The memory is still allocated and initialized, and only the quarantine has it.
            let bytes = unsafe { std::slice::from_raw_parts(start, len.get() as usize) };
            let place = bytes.iter().position(|byte| *byte != POISON)?;
            Some(UseAfterFree { address: (start.addr() + place) as u64 })
        });
        changed.collect()
    }

    /// Ends the quarantine and frees its memory.
    pub(super) fn end_quarantine<B: Backend>(&self, inner: &B) {
        let kept = self.kept().take(); // before the loop, which would otherwise hold the lock
        for (start, len) in kept.into_iter().flatten() {
            if let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut(start)) {
                // SAFETY: The memory came from a caller of `dealloc_host`, who promises that nothing uses it.
                unsafe { inner.dealloc_host(start, len) };
            }
        }
    }

    /// Frees all memory, whoever owns it.
    ///
    /// # Safety
    /// * Nothing uses any of it any more, and its owners do not free it.
    pub(super) unsafe fn reclaim<B: Backend>(&self, inner: &B) {
        self.end_quarantine(inner);
        for (start, len) in self.budget.live() {
            if let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut(start))
                && self.remove(start, len)
            {
                // SAFETY: The caller promises that nothing uses the memory.
                unsafe { self.dealloc(inner, start, len) };
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Vec<(usize, NonZeroU64)>>> {
        lock(&self.kept)
    }
}

/// Returns the addresses of host memory.
pub(super) fn addresses(start: NonNull<u8>, len: NonZeroU64) -> Range<usize> {
    let start = start.as_ptr().addr();
    start..start + len.get() as usize
}
