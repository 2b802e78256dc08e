//! Buffer objects as memory of the device.

use std::collections::HashMap;
use std::sync::Arc;

use accelerator_core::DevicePtr;
use cl3::types::cl_mem;

use crate::handle::Memory;

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

/// The buffer objects that a device handed out.
#[derive(Debug)]
pub(crate) struct Segments {
    next_address: u64,
    live: HashMap<OpenClPtr, Segment>,
}

/// A buffer object, and the sub-buffers of it by start and length: to make one costs more than a launch.
#[derive(Debug)]
pub(crate) struct Segment {
    _memory: Memory,
    pub(crate) parts: HashMap<(usize, usize), Arc<Memory>>,
}

impl Segments {
    pub(crate) fn add(&mut self, memory: Memory, len: u64) -> OpenClPtr {
        let (base, buffer) = (self.next_address, memory.raw().expose_provenance());
        self.next_address = base.saturating_add(len.next_multiple_of(ADDRESS_STEP));
        let ptr = OpenClPtr { buffer, offset: 0, base };
        self.live.insert(ptr, Segment { _memory: memory, parts: HashMap::new() });
        ptr
    }

    /// Takes one out, to be dropped: the driver keeps it until its last work is done.
    pub(crate) fn remove(&mut self, start: OpenClPtr) -> Option<Segment> {
        self.live.remove(&start)
    }

    /// The one that this place is in.
    pub(crate) fn around(&mut self, place: OpenClPtr) -> Option<&mut Segment> {
        self.live.get_mut(&OpenClPtr { offset: 0, ..place })
    }
}

impl Default for Segments {
    fn default() -> Self {
        Self { next_address: FIRST_ADDRESS, live: HashMap::new() }
    }
}
