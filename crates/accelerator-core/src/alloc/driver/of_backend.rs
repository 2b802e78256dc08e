//! A backend as the driver of one device.
#![allow(unsafe_code)] // calls that give memory back

use std::num::NonZeroU64;

use super::{AddressSpace, Driver, EXPORTS_NOTHING, len};
use crate::alloc::arena::DetachedSegment;
use crate::alloc::blocks::Base;
use crate::backend::Backend;
use crate::interprocess::Exported;
use crate::types::{DeviceProperties, DevicePtr, DriverResult, MemoryInfo};
use crate::virtual_memory::{Pages, VirtualMemory};

/// A backend, and its virtual memory.
pub(crate) struct DriverOf<B: Backend> {
    backend: &'static B,
    address_space: Option<SpaceOf<B>>,
}

struct SpaceOf<B: Backend>(&'static B, &'static dyn VirtualMemory<B::Ptr>);

impl<B: Backend> DriverOf<B> {
    pub(crate) fn new(backend: &'static B) -> Self {
        Self { backend, address_space: backend.virtual_memory().map(|memory| SpaceOf(backend, memory)) }
    }
}

/// Returns the pointer of a segment that [`Driver::alloc`] or [`AddressSpace::reserve`] of this backend returned.
fn ptr<B: Backend>(base: Base) -> B::Ptr {
    // SAFETY: An allocator only has bases that its own driver made, from pointers of this backend.
    unsafe { base.ptr() }
}

impl<B: Backend> Driver for DriverOf<B> {
    fn properties(&self) -> &DeviceProperties {
        self.backend.properties()
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.backend.memory_info()
    }

    fn alloc(&self, size: u64) -> DriverResult<Base> {
        self.backend.alloc(len(size)).map(Base::new)
    }

    fn dealloc(&self, segment: DetachedSegment) {
        // SAFETY: Only `Store::detach_segment` makes a `DetachedSegment`. It removes the segment that `alloc` returned,
        // so the segment is given back once. All of it was free, so no more work is submitted on it.
        unsafe { self.backend.dealloc(ptr::<B>(segment.base), len(segment.size)) }
    }

    unsafe fn export(&self, base: Base, size: u64) -> DriverResult<Exported> {
        let between = self.backend.interprocess().ok_or(EXPORTS_NOTHING)?;
        // SAFETY: The caller guarantees it.
        unsafe { between.export(ptr::<B>(base), len(size)) }
    }

    fn address_space(&self) -> Option<&dyn AddressSpace> {
        self.address_space.as_ref().map(|space| space as &dyn AddressSpace)
    }
}

impl<B: Backend> AddressSpace for SpaceOf<B> {
    fn granularity(&self) -> NonZeroU64 {
        self.1.granularity()
    }

    fn maps_twice(&self) -> bool {
        self.1.maps_twice()
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<Base> {
        self.1.reserve(len).map(Base::new)
    }

    unsafe fn release(&self, at: Base, len: NonZeroU64) {
        // SAFETY: The caller guarantees it.
        unsafe { self.1.release(ptr::<B>(at), len) }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.1.create(len)
    }

    unsafe fn destroy(&self, pages: Pages) {
        // SAFETY: The caller guarantees it.
        unsafe { self.1.destroy(pages) }
    }

    unsafe fn map(&self, at: Base, offset: u64, pages: &Pages) -> DriverResult<()> {
        // SAFETY: The caller guarantees it.
        unsafe { self.1.map(ptr::<B>(at).offset(offset), pages) }
    }

    unsafe fn unmap(&self, at: Base, offset: u64, len: NonZeroU64) -> DriverResult<()> {
        // SAFETY: The caller guarantees it.
        unsafe { self.1.unmap(ptr::<B>(at).offset(offset), len) }
    }

    unsafe fn export(&self, pages: &Pages) -> DriverResult<Exported> {
        let between = self.0.interprocess().ok_or(EXPORTS_NOTHING)?;
        // SAFETY: The caller guarantees it.
        unsafe { between.export_pages(pages) }
    }
}
