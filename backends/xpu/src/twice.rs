//! Tests whether the driver can map the same memory at two addresses. The specification does not say, and drivers
//! differ: some reject the second mapping, others remove the first one.
#![allow(unsafe_code)] // maps memory, and calls the driver

use std::ffi::c_void;
use std::ptr;

use accelerator_core::backend_kit::try_twice;
use accelerator_core::{DriverResult, Pages, VirtualMemory};

use crate::answer::call;
use crate::memory::XpuPtr;
use crate::queue::XpuStream;
use crate::virtual_memory::Pager;

/// Tests the driver: data written through either address must be visible through the other.
pub(crate) fn maps_twice(pager: &Pager) -> DriverResult<bool> {
    let mut trial = Trial { pager, pages: None, reserved: Vec::new(), mapped: Vec::new() };
    let (first, second) = (trial.map()?, trial.map()?);
    Ok(trial.shows(0x5a, first, second)? && trial.shows(0xa5, second, first)?)
}

/// One granule of memory and its addresses, which are released on drop.
struct Trial<'a> {
    pager: &'a Pager,
    pages: Option<Pages>,
    reserved: Vec<XpuPtr>,
    mapped: Vec<XpuPtr>,
}

impl Trial<'_> {
    /// Maps the memory at another address.
    fn map(&mut self) -> DriverResult<XpuPtr> {
        let len = self.pager.granularity();
        let at = self.pager.reserve(len)?;
        self.reserved.push(at);
        let pages = match &mut self.pages {
            Some(pages) => pages,
            none => none.insert(self.pager.create(len)?),
        };
        // SAFETY: The range is a new reservation.
        unsafe { self.pager.map(at, pages) }?;
        self.mapped.push(at);
        Ok(at)
    }

    /// Whether bytes of this value, written at one address, are visible at another.
    fn shows(&self, value: u8, written: XpuPtr, read: XpuPtr) -> DriverResult<bool> {
        let mut bytes = Box::new(([value; 64], [!value; 64]));
        let (source, target) = &mut *bytes;
        let stream = self.pager.stream()?;
        let copied = copy(&stream, written.native(), source.as_ptr().cast())
            .and_then(|()| copy(&stream, target.as_mut_ptr().cast(), read.native()));
        // Wait even after an error: the copies use these bytes.
        let done = stream.0.synchronize();
        let is_shown = source == target;
        if done.is_err() {
            Box::leak(bytes); // copies may still use them
        }
        copied.and(done).map(|()| is_shown)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let len = self.pager.granularity();
        let Self { pager, mapped, .. } = self;
        // SAFETY: Each is one whole mapping, whose copies are done.
        mapped.retain(|at| !try_twice(|| unsafe { pager.unmap(*at, len) }));
        if mapped.is_empty()
            && let Some(pages) = self.pages.take()
        {
            // SAFETY: The memory was made here and is mapped nowhere.
            unsafe { pager.destroy(pages) };
        }
        for at in self.reserved.iter().filter(|at| !mapped.contains(at)) {
            // SAFETY: The range was reserved here, and nothing is mapped there.
            unsafe { pager.release(*at, len) };
        }
    }
}

fn copy(stream: &XpuStream, to: *mut c_void, from: *const c_void) -> DriverResult<()> {
    let (device, none) = (&stream.0.device, ptr::null_mut());
    stream.0.submit(|list| {
        // SAFETY: Both are valid for 64 bytes until the stream has executed the copy; the list is used under its lock.
        unsafe { call!(device, zeCommandListAppendMemoryCopy(list, to, from, 64, none, 0, ptr::null_mut())) }
    })
}
