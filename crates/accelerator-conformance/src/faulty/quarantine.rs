//! Freed memory that is filled with poison and kept, so that later writes to it are detected.
#![allow(unsafe_code)] // `Backend::fill`, `Backend::copy` and `Backend::dealloc`

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, DevicePtr, DriverResult, Place};

/// The value that memory in quarantine is filled with.
pub const POISON: u8 = 0xDD;

/// Memory that was written to after it was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseAfterFree {
    /// [`DevicePtr::trace_address`] of the first byte that changed, or its address in host memory.
    pub address: u64,
}

/// Memory that its owner has freed but the driver has not received yet; `None` without a quarantine.
pub(super) struct Quarantine<B: Backend>(Mutex<Kept<B>>);

type Kept<B> = Option<Vec<(<B as Backend>::Ptr, NonZeroU64)>>;

impl<B: Backend> Quarantine<B> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(super) fn start(&self) {
        self.kept().get_or_insert_default();
    }

    pub(super) fn is_on(&self) -> bool {
        self.kept().is_some()
    }

    /// Poisons and keeps memory that no work uses any more. Returns false if there is no quarantine or the fill failed.
    pub(super) fn take(&self, inner: &B, ptr: B::Ptr, len: NonZeroU64, stream: &B::Stream) -> bool {
        let mut kept = self.kept();
        let Some(kept) = kept.as_mut() else { return false };
        // SAFETY: The memory is still allocated: only the quarantine frees it, in `end`.
        let filled = unsafe { inner.fill(ptr, POISON, len, stream) };
        let poisoned = filled.and_then(|()| inner.synchronize(stream)).is_ok();
        if poisoned {
            kept.push((ptr, len));
        }
        poisoned
    }

    /// Returns where memory in quarantine was written to.
    pub(super) fn check(&self, inner: &B, stream: &B::Stream) -> DriverResult<Vec<UseAfterFree>> {
        let mut found = Vec::new();
        for (ptr, len) in self.kept().iter().flatten() {
            let mut bytes = vec![0; len.get() as usize];
            let host = Place::Host(NonNull::from(bytes.as_mut_slice()).cast());
            // SAFETY: The memory is still allocated. The host range has `len` bytes and outlives the synchronize, after
            // which nothing touches it, even if it failed.
            let copied = unsafe { inner.copy(host, Place::Device(*ptr), *len, stream) };
            copied.and_then(|()| inner.synchronize(stream))?;
            if let Some(changed) = bytes.iter().position(|byte| *byte != POISON) {
                found.push(UseAfterFree { address: ptr.offset(changed as u64).trace_address() });
            }
        }
        Ok(found)
    }

    /// Ends the quarantine and frees its memory.
    pub(super) fn end(&self, inner: &B) {
        let kept = self.kept().take(); // before the loop, which would otherwise hold the lock
        for (ptr, len) in kept.into_iter().flatten() {
            // SAFETY: The memory came from a caller of `dealloc`, who promises that nothing uses it, and is freed only
            // once.
            unsafe { inner.dealloc(ptr, len) };
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<B>> {
        lock(&self.0)
    }
}
