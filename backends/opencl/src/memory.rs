//! Buffer objects as memory of the device, counted, since no portable call tells what is free.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use accelerator_core::DevicePtr;
use cl3::types::cl_mem;

use crate::handle::Memory;
use crate::kernel_argument::Parts;

/// Where addresses for traces begin, and what those of buffer objects are multiples of.
const FIRST_ADDRESS: u64 = 0x1000_0000_0000;
const ADDRESS_STEP: u64 = 1 << 21;

/// A place in a buffer object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenClPtr {
    buffer: usize,
    offset: usize,
    /// Where the buffer object lies in traces: handles are no addresses.
    base: u64,
}

impl OpenClPtr {
    /// A place in a buffer object that another library made, as one end of a copy or fill.
    pub fn from_native(buffer: cl_mem, offset: usize) -> Self {
        Self { buffer: buffer.expose_provenance(), offset, base: 0 }
    }

    /// The buffer object, from which the core cuts many blocks, and how many bytes from its start the place is.
    pub fn native(self) -> (cl_mem, usize) {
        (std::ptr::with_exposed_provenance_mut(self.buffer), self.offset)
    }

    /// The start of the buffer object.
    pub(crate) fn whole(self) -> Self {
        Self { offset: 0, ..self }
    }

    pub(crate) fn overlaps(self, other: Self, len: usize) -> bool {
        self.buffer == other.buffer && self.offset.abs_diff(other.offset) < len
    }
}

impl DevicePtr for OpenClPtr {
    fn offset(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes as usize, ..self }
    }

    fn trace_address(self) -> u64 {
        self.base + self.offset as u64
    }
}

/// What a device handed out.
#[derive(Debug)]
pub(crate) struct Segments {
    capacity: u64,
    held: Mutex<Held>,
}

#[derive(Debug)]
pub(crate) struct Held {
    used: u64,
    next_address: u64,
    pub(crate) segments: HashMap<OpenClPtr, Segment>,
}

/// A buffer object, and what kernels were given of it.
#[derive(Debug)]
pub(crate) struct Segment {
    _memory: Memory,
    pub(crate) parts: Parts,
}

impl Segments {
    pub(crate) fn new(capacity: u64) -> Self {
        let held = Held { used: 0, next_address: FIRST_ADDRESS, segments: HashMap::new() };
        Self { capacity, held: Mutex::new(held) }
    }

    pub(crate) fn free(&self) -> u64 {
        self.capacity - self.held().used
    }

    /// Sets `len` bytes aside. Whether there are as many.
    pub(crate) fn reserve(&self, len: u64) -> bool {
        let mut held = self.held();
        let used = held.used.checked_add(len).filter(|used| *used <= self.capacity);
        held.used = used.unwrap_or(held.used);
        used.is_some()
    }

    /// Takes back what was set aside.
    pub(crate) fn refund(&self, len: u64) {
        self.held().used -= len;
    }

    /// Keeps a buffer object for which bytes are set aside.
    pub(crate) fn add(&self, memory: Memory, len: u64) -> OpenClPtr {
        let mut held = self.held();
        let base = held.next_address;
        held.next_address = base.saturating_add(len.next_multiple_of(ADDRESS_STEP));
        let ptr = OpenClPtr { buffer: memory.raw().expose_provenance(), offset: 0, base };
        held.segments.insert(ptr, Segment { _memory: memory, parts: Parts::default() });
        ptr
    }

    /// Lets a buffer object go, which the driver does when its last work is done.
    pub(crate) fn remove(&self, ptr: OpenClPtr, len: u64) {
        let segment = self.held().segments.remove(&ptr);
        if segment.is_some() {
            self.refund(len);
        }
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
