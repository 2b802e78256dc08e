use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::{Arc, Mutex};

use accelerator_core::{Accounting, DevicePtr, DriverError, DriverErrorKind, DriverResult};

use crate::event::lock;

/// Every buffer starts at a multiple of this.
pub(crate) const ALIGNMENT: u64 = 4096;

/// A location in device memory: a buffer and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SamplePtr {
    /// The first trace address of the buffer, which identifies it.
    pub(crate) start: u64,
    pub(crate) offset: u64,
}

impl DevicePtr for SamplePtr {
    fn offset(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }

    fn trace_address(self) -> u64 {
        self.start + self.offset
    }
}

/// The memory of the device.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) accounting: Arc<Accounting>,
    live: Mutex<Live>,
}

#[derive(Debug)]
struct Live {
    /// The trace address of the next buffer. None is used twice.
    next: u64,
    buffers: HashMap<u64, Arc<Buffer>>,
}

/// One allocation. Work that uses it owns it, too, so it goes back to the system when the last work is done.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Mutex<Box<[u8]>>,
    len: u64,
    accounting: Arc<Accounting>,
}

impl Memory {
    pub(crate) fn new(capacity: u64) -> Self {
        let live = Live { next: 1 << 40, buffers: HashMap::new() };
        Self { accounting: Arc::new(Accounting::new(capacity)), live: Mutex::new(live) }
    }

    pub(crate) fn alloc(&self, len: NonZeroU64) -> DriverResult<SamplePtr> {
        let full = DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", "out of memory");
        if !self.accounting.take(len.get()) {
            return Err(full);
        }
        let Some(bytes) = zeroed(len) else {
            self.accounting.give_back(len.get());
            return Err(full);
        };
        let accounting = Arc::clone(&self.accounting);
        let buffer = Buffer { bytes: Mutex::new(bytes), len: len.get(), accounting };
        let mut live = lock(&self.live);
        let start = live.next;
        live.next += len.get().next_multiple_of(ALIGNMENT);
        live.buffers.insert(start, Arc::new(buffer));
        Ok(SamplePtr { start, offset: 0 })
    }

    pub(crate) fn dealloc(&self, ptr: SamplePtr) {
        drop(lock(&self.live).buffers.remove(&ptr.start));
    }

    /// Returns the bytes of a range, for work.
    pub(crate) fn range(&self, call: &'static str, ptr: SamplePtr, len: usize) -> DriverResult<Range> {
        let buffer = lock(&self.live).buffers.get(&ptr.start).cloned();
        let within = buffer.filter(|buffer| ptr.offset + len as u64 <= buffer.len);
        let outside = DriverError::refused(DriverErrorKind::InvalidArgument, call, "the range is in no buffer");
        within.map(|buffer| Range { buffer, start: ptr.offset as usize, len }).ok_or(outside)
    }
}

/// A part of a buffer.
pub(crate) struct Range {
    buffer: Arc<Buffer>,
    start: usize,
    pub(crate) len: usize,
}

impl Range {
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        work(&mut lock(&self.buffer.bytes)[self.start..][..self.len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.accounting.give_back(self.len);
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
