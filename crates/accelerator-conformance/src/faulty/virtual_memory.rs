//! The calls of virtual memory, with injected faults.
#![allow(unsafe_code)] // the trait is unsafe to implement

use std::num::NonZeroU64;
use std::sync::MutexGuard;

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, DevicePtr, DriverErrorKind, DriverResult, Pages, VirtualMemory};

use super::Faulty;
use crate::calls::{Call, failure};
use crate::controls::Controls;
use crate::mappings::{Mappings, Misuse};

impl<B: Backend> Faulty<B> {
    /// Returns the inner driver's virtual memory. Without it, `Faulty` does not offer these calls.
    fn pager(&self, call: Call) -> DriverResult<&dyn VirtualMemory<B::Ptr>> {
        let none = failure(call, DriverErrorKind::Unsupported, "the wrapped driver has no virtual memory");
        self.inner.virtual_memory().ok_or(none)
    }

    /// Counts calls that are not allowed; they are not passed on.
    fn allowed<T>(&self, call: Call, result: Result<T, Misuse>) -> DriverResult<T> {
        result.map_err(|misuse| {
            self.budget.add_misuse();
            failure(call, DriverErrorKind::InvalidArgument, misuse)
        })
    }

    pub(super) fn mappings(&self) -> MutexGuard<'_, Mappings<B::Ptr>> {
        lock(&self.mappings)
    }

    /// Frees all memory without its own address, and all address space, whoever owns it.
    ///
    /// # Safety
    /// * None of it is used, freed or mapped afterwards.
    pub(super) unsafe fn reclaim_virtual_memory(&self) {
        let Some(inner) = self.inner.virtual_memory() else { return };
        let mut mappings = self.mappings();
        for (at, len) in mappings.all_mapped() {
            // SAFETY: It is a whole mapping; the caller promises that nothing uses it.
            let unmapped = unsafe { inner.unmap(at, len) };
            if unmapped.is_ok() {
                // The mapping was listed, so this succeeds.
                let _ = mappings.unmap(at, len);
            }
        }
        for pages in mappings.all_created() {
            if mappings.destroy(&pages).is_ok() {
                if !self.imports.remove(pages.handle) {
                    self.budget.refund(pages.len);
                }
                // SAFETY: It is memory of the inner driver that is mapped nowhere and no longer listed.
                unsafe { inner.destroy(pages) };
            }
        }
        for (at, len) in mappings.all_reserved() {
            if mappings.release(at, len).is_ok() {
                // SAFETY: It is a reservation of the inner driver with nothing mapped, no longer listed.
                unsafe { inner.release(at, len) };
            }
        }
    }
}

// SAFETY: Address space, memory and mappings are those of the inner driver, whose contract is the same; calls that the
// contract does not allow are not passed on.
unsafe impl<B: Backend> VirtualMemory<B::Ptr> for Faulty<B> {
    fn granularity(&self) -> NonZeroU64 {
        self.inner.virtual_memory().map_or(NonZeroU64::MIN, VirtualMemory::granularity)
    }

    fn maps_twice(&self) -> bool {
        self.inner.virtual_memory().is_some_and(VirtualMemory::maps_twice)
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<B::Ptr> {
        self.entrance.admit(Call::Reserve)?;
        let at = self.pager(Call::Reserve)?.reserve(len)?;
        self.mappings().reserve(at, len);
        Ok(at)
    }

    unsafe fn release(&self, at: B::Ptr, len: NonZeroU64) {
        self.entrance.enter(Call::Release);
        let released = self.mappings().release(at, len);
        if let (Ok(()), Ok(inner)) = (self.allowed(Call::Release, released), self.pager(Call::Release)) {
            // SAFETY: Until now, `mappings` listed it as a reservation with nothing mapped.
            unsafe { inner.release(at, len) };
        }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.entrance.admit(Call::Create)?;
        let inner = self.pager(Call::Create)?;
        if !self.budget.reserve(len) {
            return Err(failure(Call::Create, DriverErrorKind::OutOfMemory, "the device's limit is reached"));
        }
        let created = inner.create(len);
        match &created {
            Ok(pages) => self.mappings().create(pages),
            Err(_) => self.budget.refund(len),
        }
        created
    }

    unsafe fn destroy(&self, pages: Pages) {
        self.entrance.enter(Call::Destroy);
        let destroyed = self.mappings().destroy(&pages);
        if let (Ok(()), Ok(inner)) = (self.allowed(Call::Destroy, destroyed), self.pager(Call::Destroy)) {
            let (len, is_imported) = (pages.len, self.imports.remove(pages.handle));
            // SAFETY: Until now, `mappings` listed it as memory that is mapped nowhere.
            unsafe { inner.destroy(pages) };
            if !is_imported {
                self.budget.refund(len);
            }
        }
    }

    unsafe fn map(&self, at: B::Ptr, pages: &Pages) -> DriverResult<()> {
        self.entrance.admit(Call::Map)?;
        let inner = self.pager(Call::Map)?;
        let entered = self.mappings().map(at, pages, inner.granularity());
        self.allowed(Call::Map, entered)?;
        // SAFETY: `mappings` has checked that the range is in one reservation with nothing mapped, and that it lists
        // the memory.
        let mapped = unsafe { inner.map(at, pages) };
        mapped.inspect_err(|_| {
            // The mapping was just added, so this succeeds.
            let _ = self.mappings().unmap(at, pages.len);
        })
    }

    unsafe fn unmap(&self, at: B::Ptr, len: NonZeroU64) -> DriverResult<()> {
        self.entrance.admit(Call::Unmap)?;
        let inner = self.pager(Call::Unmap)?;
        let whole = self.mappings().is_mapping(at, len).then_some(()).ok_or("the range is not exactly one mapping");
        self.allowed(Call::Unmap, whole)?;
        let start = at.trace_address();
        if self.lanes.touch_device(&(start..start + len.get())) {
            self.budget.add_misuse(); // the caller promised that no such work is left
            self.lanes.force_bytes(&self.inner);
            self.settle();
        }
        // SAFETY: `mappings` lists it as one whole mapping; the caller promises that all work is over.
        unsafe { inner.unmap(at, len) }?;
        let removed = self.mappings().unmap(at, len);
        self.allowed(Call::Unmap, removed)
    }
}
