//! Buffer objects as device memory.

use std::collections::HashMap;
use std::sync::Arc;

use accelerator_core::DevicePtr;
use cl3::types::cl_mem;

use crate::handle::Memory;

/// The first trace address, and the alignment of buffer objects' trace addresses.
const FIRST_ADDRESS: u64 = 0x1000_0000_0000;
const ADDRESS_STEP: u64 = 1 << 21;

/// An address in the memory of an OpenCL device: a buffer object and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenClPtr {
    buffer: usize,
    offset: usize,
    /// The trace address of the buffer object; its handle is not an address.
    base: u64,
}

impl OpenClPtr {
    /// Makes an address in a buffer object that another library made, to be used as one end of a copy or fill.
    pub fn from_native(buffer: cl_mem, offset: usize) -> Self {
        Self { buffer: buffer.expose_provenance(), offset, base: 0 }
    }

    /// Returns the buffer object, which contains many blocks of the core, and the offset in bytes from its start.
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

/// The buffer objects that a device has handed out.
#[derive(Debug)]
pub(crate) struct Segments {
    next_address: u64,
    live: HashMap<OpenClPtr, Segment>,
}

/// A buffer object and its sub-buffers by start and length. They are cached, since making one costs more than a launch.
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

    /// Removes a segment, to be dropped. The driver keeps the memory until its last work is done.
    pub(crate) fn remove(&mut self, start: OpenClPtr) -> Option<Segment> {
        self.live.remove(&start)
    }

    /// Returns the segment that contains this address.
    pub(crate) fn around(&mut self, place: OpenClPtr) -> Option<&mut Segment> {
        self.live.get_mut(&OpenClPtr { offset: 0, ..place })
    }
}

impl Default for Segments {
    fn default() -> Self {
        Self { next_address: FIRST_ADDRESS, live: HashMap::new() }
    }
}
