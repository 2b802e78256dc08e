//! Memory between processes that is wrong.

use std::num::NonZeroU64;

use accelerator_core::{Backend, DriverError, DriverErrorKind, DriverResult, Exported, Interprocess, Pages};

use super::Broken;
use crate::fault::{Fault, has};

impl<B: Backend> Broken<B> {
    fn between(&self, call: &'static str) -> DriverResult<&dyn Interprocess<B::Ptr>> {
        let none = DriverError::refused(DriverErrorKind::Unsupported, call, "the driver has no such memory");
        self.inner.interprocess().ok_or(none)
    }
}

// SAFETY: As for `Broken`'s other methods.
unsafe impl<B: Backend> Interprocess<B::Ptr> for Broken<B> {
    unsafe fn export(&self, ptr: B::Ptr, len: NonZeroU64) -> DriverResult<Exported> {
        // SAFETY: The caller promises the same.
        unsafe { self.between("export")?.export(ptr, len) }
    }

    fn import(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<B::Ptr> {
        match has(Fault::ImportsOtherMemory) {
            true => self.inner.alloc(len),
            false => self.between("import")?.import(exported, len),
        }
    }

    unsafe fn close(&self, ptr: B::Ptr, len: NonZeroU64) {
        match self.between("close") {
            // SAFETY: `import` allocated it. The caller promises the rest.
            _ if has(Fault::ImportsOtherMemory) => unsafe { self.inner.dealloc(ptr, len) },
            // SAFETY: The caller promises the same.
            Ok(between) => unsafe { between.close(ptr, len) },
            Err(_) => {}
        }
    }

    unsafe fn export_pages(&self, pages: &Pages) -> DriverResult<Exported> {
        // SAFETY: The caller promises the same.
        unsafe { self.between("export_pages")?.export_pages(pages) }
    }

    fn import_pages(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<Pages> {
        match self.inner.virtual_memory().filter(|_| has(Fault::ImportsOtherPages)) {
            Some(memory) => memory.create(len),
            None => self.between("import_pages")?.import_pages(exported, len),
        }
    }
}
