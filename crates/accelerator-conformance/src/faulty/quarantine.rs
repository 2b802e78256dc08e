//! Memory that was given back, filled with poison and kept, so that later writes to it are found.
#![allow(unsafe_code)] // `Backend::fill`, `Backend::copy` and `Backend::dealloc`

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use accelerator_core::{Backend, DevicePtr, DriverResult, Place};

/// What memory in quarantine is filled with.
pub const POISON: u8 = 0xDD;

/// Memory that was used after it had been given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseAfterFree {
    /// [`DevicePtr::trace_address`] of the first byte that changed; of host memory, its address.
    pub address: u64,
}

/// Memory that its owner gave back and the driver has not got yet; `None`: there is no quarantine.
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

    /// Poisons and keeps the memory, which no work uses any more. Whether there is a quarantine, and it could be filled.
    pub(super) fn take(&self, inner: &B, ptr: B::Ptr, len: NonZeroU64, stream: &B::Stream) -> bool {
        let mut kept = self.kept();
        let Some(kept) = kept.as_mut() else { return false };
        // SAFETY: The memory is allocated still: only the quarantine gives it back, in `end`.
        let filled = unsafe { inner.fill(ptr, POISON, len, stream) };
        let poisoned = filled.and_then(|()| inner.synchronize(stream)).is_ok();
        if poisoned {
            kept.push((ptr, len));
        }
        poisoned
    }

    /// Where memory in quarantine was written to.
    pub(super) fn check(&self, inner: &B, stream: &B::Stream) -> DriverResult<Vec<UseAfterFree>> {
        let mut found = Vec::new();
        for (ptr, len) in self.kept().iter().flatten() {
            let mut bytes = vec![0; len.get() as usize];
            let host = Place::Host(NonNull::from(bytes.as_mut_slice()).cast());
            // SAFETY: The memory is allocated still; the host's end is `len` bytes long and lives past the synchronise,
            // after which, failed or not, nothing touches it.
            let copied = unsafe { inner.copy(host, Place::Device(*ptr), *len, stream) };
            copied.and_then(|()| inner.synchronize(stream))?;
            if let Some(changed) = bytes.iter().position(|byte| *byte != POISON) {
                found.push(UseAfterFree { address: ptr.offset(changed as u64).trace_address() });
            }
        }
        Ok(found)
    }

    /// Ends the quarantine and gives the memory back.
    pub(super) fn end(&self, inner: &B) {
        let kept = self.kept().take(); // ahead of the loop, which would keep the lock
        for (ptr, len) in kept.into_iter().flatten() {
            // SAFETY: Taken from a caller of `dealloc`, whose promise it is that nothing uses it, and given back once.
            unsafe { inner.dealloc(ptr, len) };
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
