//! The calls of memory between processes, with injected faults.
#![allow(unsafe_code)] // the trait is unsafe to implement

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, DriverErrorKind, DriverResult, Exported, Interprocess, Pages};

use super::Faulty;
use crate::calls::{Call, failure};

/// Imported memory, which has no limit.
#[derive(Debug)]
pub(super) struct Imports<P> {
    /// A driver may return the same address again for the same memory.
    open: Mutex<Vec<(P, NonZeroU64)>>,
    /// The handles of imported memory without an address.
    pages: Mutex<HashSet<u64>>,
}

impl<P: Copy + PartialEq> Imports<P> {
    pub(super) fn new() -> Self {
        Self { open: Mutex::default(), pages: Mutex::default() }
    }

    /// Returns the number of imports with an address that are open.
    pub(super) fn open(&self) -> usize {
        lock(&self.open).len()
    }

    fn close(&self, ptr: P, len: NonZeroU64) -> bool {
        let mut open = lock(&self.open);
        let place = open.iter().position(|import| *import == (ptr, len));
        place.map(|place| open.swap_remove(place)).is_some()
    }

    /// Removes the handle of imported memory. Returns whether it was one.
    pub(super) fn remove(&self, handle: u64) -> bool {
        lock(&self.pages).remove(&handle)
    }
}

impl<B: Backend> Faulty<B> {
    fn between(&self, call: Call) -> DriverResult<&dyn Interprocess<B::Ptr>> {
        let none = failure(call, DriverErrorKind::Unsupported, "the wrapped driver has no memory between processes");
        self.inner.interprocess().ok_or(none)
    }
}

// SAFETY: All memory is that of the inner driver, whose contract is the same.
unsafe impl<B: Backend> Interprocess<B::Ptr> for Faulty<B> {
    unsafe fn export(&self, ptr: B::Ptr, len: NonZeroU64) -> DriverResult<Exported> {
        self.entrance.admit(Call::Export)?;
        if !self.budget.live().contains(&(ptr, len)) {
            self.budget.add_misuse();
            return Err(failure(Call::Export, DriverErrorKind::InvalidArgument, "the memory is not allocated"));
        }
        // SAFETY: `budget` lists it as a live allocation of the inner backend. The caller promises the rest.
        unsafe { self.between(Call::Export)?.export(ptr, len) }
    }

    fn import(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<B::Ptr> {
        self.entrance.admit(Call::Import)?;
        let ptr = self.between(Call::Import)?.import(exported, len)?;
        lock(&self.imports.open).push((ptr, len));
        Ok(ptr)
    }

    unsafe fn close(&self, ptr: B::Ptr, len: NonZeroU64) {
        self.entrance.enter(Call::Close);
        let Ok(between) = self.between(Call::Close) else { return };
        match self.imports.close(ptr, len) {
            // SAFETY: It was listed as imported until now. The caller promises the rest.
            true => unsafe { between.close(ptr, len) },
            false => self.budget.add_misuse(),
        }
    }

    unsafe fn export_pages(&self, pages: &Pages) -> DriverResult<Exported> {
        self.entrance.admit(Call::ExportPages)?;
        // SAFETY: The caller makes the same promise.
        unsafe { self.between(Call::ExportPages)?.export_pages(pages) }
    }

    fn import_pages(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<Pages> {
        self.entrance.admit(Call::ImportPages)?;
        let pages = self.between(Call::ImportPages)?.import_pages(exported, len)?;
        lock(&self.imports.pages).insert(pages.handle);
        self.mappings().create(&pages);
        Ok(pages)
    }
}
