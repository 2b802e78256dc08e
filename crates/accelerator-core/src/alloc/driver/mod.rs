//! The driver of one device without its types: what the allocator asks of it, and nothing else. Only here are segments and pages
//! taken from a driver and given back.

mod mappings;
mod of_backend;

use std::num::NonZeroU64;

pub(crate) use self::mappings::Mappings;
pub(crate) use self::of_backend::DriverOf;
use super::arena::DetachedSegment;
use super::blocks::Base;
use crate::types::{DeviceProperties, DriverResult, MemoryInfo};
use crate::virtual_memory::Pages;

/// What the allocator asks of a driver.
pub(crate) trait Driver: Send + Sync {
    fn properties(&self) -> &DeviceProperties;

    fn memory_info(&self) -> DriverResult<MemoryInfo>;

    /// Takes a segment.
    fn alloc(&self, size: u64) -> DriverResult<Base>;

    /// Gives a segment back.
    fn dealloc(&self, segment: DetachedSegment);

    /// Address space and memory apart, where the backend offers them.
    fn address_space(&self) -> Option<&dyn AddressSpace>;
}

/// [`VirtualMemory`](crate::VirtualMemory) without its pointers: addresses are the start of a reservation, and bytes from there on.
#[allow(unsafe_code)] // as there
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
}
