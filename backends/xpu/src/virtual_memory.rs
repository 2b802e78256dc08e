//! Address space and memory, separately.
#![allow(unsafe_code)] // calls the driver

use std::num::NonZeroU64;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use accelerator_core::backend_kit::{byte_count, try_twice};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Pages, VirtualMemory};
use level_zero_sys as sys;
use level_zero_sys::ze_command_queue_priority_t as Priority;

use crate::answer::call;
use crate::device::Device;
use crate::memory::XpuPtr;
use crate::queue::{Group, Queue, XpuStream};
use crate::signal::Signals;
use crate::twice;

/// Maps memory of one device.
#[derive(Debug)]
pub(crate) struct Pager {
    device: Arc<Device>,
    granularity: NonZeroU64,
    /// For the streams that test the driver's behaviour.
    group: Group,
    signals: Arc<Signals>,
    /// Set once the test has been made.
    maps_twice: OnceLock<bool>,
}

/// The smallest unit that is mapped. Larger pages are used for sizes that are multiples of theirs.
const PAGE: usize = 2 << 20;

impl Pager {
    /// Returns `None` if the device or its driver does not support virtual memory. Some report a page size but cannot
    /// reserve anything.
    pub(crate) fn new(device: &Arc<Device>, group: Group, signals: &Arc<Signals>) -> Option<Self> {
        let mut page = 0;
        // SAFETY: The context is alive, and the call writes a number.
        unsafe { call!(device, zeVirtualMemQueryPageSize(device.context(), device.raw(), PAGE, &mut page)) }.ok()?;
        let granularity = NonZeroU64::new(page.max(PAGE) as u64)?;
        let (device, signals) = (Arc::clone(device), Arc::clone(signals));
        let pager = Self { device, granularity, group, signals, maps_twice: OnceLock::new() };
        let tried = pager.reserve(granularity).ok()?;
        // SAFETY: The range was just reserved, and nothing is mapped there.
        unsafe { pager.release(tried, granularity) };
        Some(pager)
    }

    /// Makes a temporary stream.
    pub(crate) fn stream(&self) -> DriverResult<XpuStream> {
        let list = || self.group.list(&self.device, 0, Priority::ZE_COMMAND_QUEUE_PRIORITY_NORMAL);
        Queue::new(&self.device, &self.signals, (self.group.order, true), list).map(XpuStream)
    }
}

// SAFETY: The driver gives each reservation its own addresses; any work may use memory that is mapped for reading and
// writing.
unsafe impl VirtualMemory<XpuPtr> for Pager {
    fn granularity(&self) -> NonZeroU64 {
        self.granularity
    }

    fn maps_twice(&self) -> bool {
        if let Some(known) = self.maps_twice.get() {
            return *known;
        }
        match twice::maps_twice(self) {
            // A later attempt may have enough memory.
            Err(error) if error.kind == DriverErrorKind::OutOfMemory => false,
            // After any other failure, double mapping is not offered, which only costs an optimization.
            answer => *self.maps_twice.get_or_init(|| answer.unwrap_or(false)),
        }
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<XpuPtr> {
        let (device, anywhere, mut at) = (&self.device, ptr::null(), ptr::null_mut());
        // SAFETY: The call writes an address.
        unsafe { call!(device, zeVirtualMemReserve(device.context(), anywhere, byte_count(len), &mut at)) }?;
        let why = "the driver returned no address";
        let nowhere = || DriverError::refused(DriverErrorKind::OutOfMemory, "zeVirtualMemReserve", why);
        (!at.is_null()).then(|| XpuPtr::from_native(at)).ok_or_else(nowhere)
    }

    unsafe fn release(&self, at: XpuPtr, len: NonZeroU64) {
        let (device, at, len) = (&self.device, at.native(), byte_count(len));
        // SAFETY: The caller releases a reservation of `reserve`, once, with nothing mapped in it.
        try_twice(|| unsafe { call!(device, zeVirtualMemFree(device.context(), at, len)) });
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        let mut description = sys::ze_physical_mem_desc_t { size: byte_count(len), ..Default::default() };
        let (device, mut memory) = (&self.device, ptr::null_mut());
        let (context, raw) = (device.context(), device.raw());
        // SAFETY: The `stype` of the description is set, and the call writes a handle.
        unsafe { call!(device, zePhysicalMemCreate(context, raw, &mut description, &mut memory)) }?;
        device.handed_out.fetch_add(len.get(), Ordering::Relaxed);
        Ok(Pages::new(memory.expose_provenance() as u64, len))
    }

    unsafe fn destroy(&self, pages: Pages) {
        let (device, memory) = (&self.device, physical(&pages));
        // SAFETY: The caller releases memory of `create`, once, and it is mapped nowhere.
        if try_twice(|| unsafe { call!(device, zePhysicalMemDestroy(device.context(), memory)) }) {
            device.handed_out.fetch_sub(pages.len.get(), Ordering::Relaxed);
        }
    }

    unsafe fn map(&self, at: XpuPtr, pages: &Pages) -> DriverResult<()> {
        let (device, memory) = (&self.device, physical(pages));
        let (context, at, len) = (device.context(), at.native(), byte_count(pages.len));
        let access = sys::ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
        // SAFETY: The caller promises that the address range is free and fits the memory.
        unsafe { call!(device, zeVirtualMemMap(context, at, len, memory, 0, access)) }
    }

    unsafe fn unmap(&self, at: XpuPtr, len: NonZeroU64) -> DriverResult<()> {
        let (device, at, len) = (&self.device, at.native(), byte_count(len));
        // SAFETY: The caller promises a whole mapping that no work uses.
        unsafe { call!(device, zeVirtualMemUnmap(device.context(), at, len)) }
    }
}

fn physical(pages: &Pages) -> sys::ze_physical_mem_handle_t {
    ptr::with_exposed_provenance_mut(pages.handle as usize)
}
