//! Buffer objects as device memory.

use std::collections::HashMap;
use std::sync::Arc;

use accelerator_core::DevicePtr;
use accelerator_core::backend_kit::{HandlePtr, SegmentTable};
use cl3::types::cl_mem;

use crate::handle::Memory;

/// An address in the memory of an OpenCL device: a buffer object and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenClPtr(HandlePtr<usize>);

impl OpenClPtr {
    /// Makes the start of a buffer object that has this trace address.
    pub(crate) fn new(buffer: cl_mem, start: u64) -> Self {
        Self(HandlePtr::new(buffer.expose_provenance(), start))
    }

    /// Makes an address in a buffer object that another library made, to be used as one end of a copy or fill.
    pub fn from_native(buffer: cl_mem, offset: usize) -> Self {
        Self(HandlePtr::from_native(buffer.expose_provenance(), offset as u64))
    }

    /// Returns the buffer object, which contains many blocks of the core, and the offset in bytes from its start.
    pub fn native(self) -> (cl_mem, usize) {
        let (buffer, offset) = self.0.native();
        (std::ptr::with_exposed_provenance_mut(buffer), offset as usize)
    }

    pub(crate) fn overlaps(self, other: Self, len: usize) -> bool {
        self.0.overlaps(other.0, len as u64)
    }
}

impl DevicePtr for OpenClPtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0.offset(bytes))
    }

    fn trace_address(self) -> u64 {
        self.0.trace_address()
    }
}

/// The buffer objects that a device has handed out, by trace address.
pub(crate) type Segments = SegmentTable<Segment>;

/// A buffer object and its sub-buffers by start and length. They are cached, since making one costs more than a launch.
/// The driver keeps the memory of a dropped one until its last work is done.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Shared with calls that must not see it go.
    pub(crate) memory: Arc<Memory>,
    pub(crate) parts: HashMap<(usize, usize), Arc<Memory>>,
}

impl Segment {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory: Arc::new(memory), parts: HashMap::new() }
    }
}
