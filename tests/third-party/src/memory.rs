use std::alloc::{Layout, alloc_zeroed};
use std::num::NonZeroU64;
use std::ptr;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{Accounting, SegmentTable, lock};
use accelerator_core::{DevicePtr, DriverError, DriverErrorKind, DriverResult};

/// A location in device memory: an address that [`SegmentTable`] has made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SamplePtr(u64);

impl DevicePtr for SamplePtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}

/// The memory of the device.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) accounting: Arc<Accounting>,
    buffers: Mutex<SegmentTable<Arc<Buffer>>>,
}

/// One allocation. Work that uses it owns it, too, so it goes back to the system when the last work is done.
#[derive(Debug)]
struct Buffer {
    bytes: Mutex<Box<[u8]>>,
    len: u64,
    accounting: Arc<Accounting>,
}

impl Memory {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { accounting: Arc::new(Accounting::new(capacity)), buffers: Mutex::default() }
    }

    pub(crate) fn alloc(&self, len: NonZeroU64) -> DriverResult<SamplePtr> {
        let full = DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", "out of memory");
        let bytes = self.accounting.alloc(len.get(), full, || zeroed(len).ok_or(full))?;
        let accounting = Arc::clone(&self.accounting);
        let buffer = Buffer { bytes: Mutex::new(bytes), len: len.get(), accounting };
        lock(&self.buffers).add(len, Arc::new(buffer)).map(SamplePtr).map_err(|_| full)
    }

    pub(crate) fn dealloc(&self, ptr: SamplePtr) {
        let buffer = lock(&self.buffers).remove(ptr.0);
        drop(buffer); // without the lock, since it may take long
    }

    /// Returns the bytes of a range, for work.
    pub(crate) fn range(&self, call: &'static str, ptr: SamplePtr, len: usize) -> DriverResult<Range> {
        let found = lock(&self.buffers).find(ptr.0).map(|(buffer, offset)| (Arc::clone(buffer), offset));
        let within = found.filter(|(buffer, offset)| buffer.len - offset >= len as u64);
        let outside = DriverError::refused(DriverErrorKind::InvalidArgument, call, "the range is in no allocation");
        within.map(|(buffer, start)| Range { buffer, start: start as usize, len }).ok_or(outside)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.accounting.give_back(self.len);
    }
}

/// A part of a buffer.
pub(crate) struct Range {
    buffer: Arc<Buffer>,
    start: usize,
    len: usize,
}

impl Range {
    /// Works on the bytes while no other work does.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        work(&mut lock(&self.buffer.bytes)[self.start..][..self.len])
    }
}

/// Returns memory that the system provides when it is touched, or `None` if there is none.
fn zeroed(len: NonZeroU64) -> Option<Box<[u8]>> {
    let len = usize::try_from(len.get()).ok()?;
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: The layout has a size other than 0.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    // SAFETY: The allocator has just returned this memory for the layout of these bytes, and they are initialised.
    Some(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, len)) })
}
