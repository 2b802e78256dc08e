//! The driver of one device, with its types erased: exactly the calls that the allocator needs. Only this module takes
//! segments and pages from a driver and gives them back.

#![allow(unsafe_code)] // as for the driver's traits

mod mappings;
mod of_backend;
mod of_source;

use std::num::NonZeroU64;

pub(crate) use self::mappings::{Mappings, MappingsMut};
pub(crate) use self::of_backend::DriverOf;
pub(crate) use self::of_source::SourceOf;
use super::arena::DetachedSegment;
use super::blocks::Base;
use crate::interprocess::Exported;
use crate::types::{DeviceProperties, DriverError, DriverErrorKind, DriverResult, MemoryInfo};
use crate::virtual_memory::Pages;

/// The driver calls that the allocator needs.
pub(crate) trait Driver: Send + Sync {
    fn properties(&self) -> &DeviceProperties;

    fn memory_info(&self) -> DriverResult<MemoryInfo>;

    /// Takes a segment from the driver.
    fn alloc(&self, size: u64) -> DriverResult<Base>;

    /// Gives a segment back to the driver.
    fn dealloc(&self, segment: DetachedSegment);

    /// Exports a segment to other processes.
    ///
    /// # Safety
    /// [`alloc`](Self::alloc) returned a segment of this size, which has not been given back.
    unsafe fn export(&self, base: Base, size: u64) -> DriverResult<Exported>;

    /// Returns the backend's virtual memory, if it has any.
    fn address_space(&self) -> Option<&dyn AddressSpace>;
}

/// [`VirtualMemory`](crate::VirtualMemory) without its pointers: an address is the start of a reservation plus a byte
/// offset.
pub(crate) trait AddressSpace: Send + Sync {
    fn granularity(&self) -> NonZeroU64;

    fn maps_twice(&self) -> bool;

    fn reserve(&self, len: NonZeroU64) -> DriverResult<Base>;

    /// # Safety
    /// As [`VirtualMemory::release`](crate::VirtualMemory::release).
    unsafe fn release(&self, at: Base, len: NonZeroU64);

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages>;

    /// # Safety
    /// As [`VirtualMemory::destroy`](crate::VirtualMemory::destroy).
    unsafe fn destroy(&self, pages: Pages);

    /// # Safety
    /// As [`VirtualMemory::map`](crate::VirtualMemory::map).
    unsafe fn map(&self, at: Base, offset: u64, pages: &Pages) -> DriverResult<()>;

    /// # Safety
    /// As [`VirtualMemory::unmap`](crate::VirtualMemory::unmap).
    unsafe fn unmap(&self, at: Base, offset: u64, len: NonZeroU64) -> DriverResult<()>;

    /// Exports pages to other processes.
    ///
    /// # Safety
    /// * As for [`Interprocess::export_pages`](crate::Interprocess::export_pages).
    unsafe fn export(&self, pages: &Pages) -> DriverResult<Exported>;
}

/// The error for a backend that exports no memory.
const EXPORTS_NOTHING: DriverError =
    DriverError::refused(DriverErrorKind::Unsupported, "export", "this backend has no memory between processes");

/// Lengths are never 0, because sizes are rounded up to at least 512 bytes.
fn len(size: u64) -> NonZeroU64 {
    NonZeroU64::new(size).unwrap_or(NonZeroU64::MIN)
}
