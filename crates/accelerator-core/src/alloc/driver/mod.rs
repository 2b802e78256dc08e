//! The driver of one device without its types: what the allocator asks of it, and nothing else. Only here are segments and pages
//! taken from a driver and given back.

mod mappings;
mod of_backend;

use std::num::NonZeroU64;

pub(crate) use self::mappings::Mappings;
pub(crate) use self::of_backend::DriverOf;
use super::arena::DetachedSegment;
use super::blocks::Base;
use crate::backend::DriverResult;
pub(crate) use crate::event::EventNumber;
use crate::types::{DeviceProperties, MemoryInfo, StreamId};
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

    fn is_capturing(&self, stream: StreamId) -> DriverResult<bool>;

    /// An event behind the work that was submitted to the stream so far; `None` while its work is being captured: then there
    /// can be none.
    fn record(&self, stream: StreamId) -> DriverResult<Option<EventNumber>>;

    /// Whether the work before an event is over. Then the event is taken back.
    fn is_over(&self, event: EventNumber) -> DriverResult<bool>;

    /// Waits on the host until the work before an event is over, and takes the event back. Errors of that work are for those who
    /// wait for it.
    fn wait_until_over(&self, event: EventNumber) -> DriverResult<()>;

    /// Makes a stream wait for an event on the device.
    fn wait_on_device(&self, stream: StreamId, event: EventNumber) -> DriverResult<()>;

    /// Takes an event back that is needed no longer.
    fn take_back(&self, event: EventNumber);
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
