//! Host memory that the device reaches by itself.
#![allow(unsafe_code)] // memory of the driver

use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{fmt, slice};

use accelerator_core::DriverResult;
use cl3::types::CL_BLOCKING;
use cl3::{command_queue, error_codes, memory};

use crate::answer;
use crate::handle::{Event, Memory, Queue};
use crate::opencl::OpenCl;

/// Host memory that the driver chose so that copies to and from the device are fast; all 0 at first.
pub struct PinnedMemory {
    start: NonNull<u8>,
    len: usize,
    memory: Memory,
    queue: Arc<Queue>,
}

// SAFETY: It is bytes that this value alone hands out.
unsafe impl Send for PinnedMemory {}
// SAFETY: As for `Send`; shared, they are only read.
unsafe impl Sync for PinnedMemory {}

impl OpenCl {
    /// Host memory for fast copies. OpenCL: `CL_MEM_ALLOC_HOST_PTR`, mapped.
    ///
    /// # Errors
    /// [`OutOfMemory`](accelerator_core::DriverErrorKind::OutOfMemory); what else the driver says.
    pub fn pinned(&self, len: NonZeroU64) -> DriverResult<PinnedMemory> {
        let memory = self.buffer(memory::CL_MEM_READ_WRITE | memory::CL_MEM_ALLOC_HOST_PTR, len)?;
        let (queue, len, none) = (Arc::clone(&self.own), len.get() as usize, ptr::null());
        let (flags, mut start) = (memory::CL_MAP_READ | memory::CL_MAP_WRITE, ptr::null_mut());
        let (to, of) = (queue.raw(), memory.raw());
        // SAFETY: Queue and buffer object live, and the range is all of it.
        let mapped = unsafe {
            command_queue::enqueue_map_buffer(to, of, CL_BLOCKING, flags, 0, len, &mut start, 0, none)
        };
        // SAFETY: The call just gave this reference.
        drop(unsafe { Event::owned(answer::of_allocation("clEnqueueMapBuffer", mapped)?) });
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| answer::error("clEnqueueMapBuffer", error_codes::CL_MAP_FAILURE))?;
        // SAFETY: `len` bytes are mapped there for reading and writing.
        unsafe { start.write_bytes(0, len) };
        Ok(PinnedMemory { start, len, memory, queue })
    }
}

impl Deref for PinnedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped there while this lives, and were written.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes are mapped there while this lives, were written, and are borrowed through this alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let (queue, memory, start) = (self.queue.raw(), self.memory.raw(), self.start.as_ptr().cast());
        // SAFETY: It is mapped there, and nobody has it any more.
        let unmapped =
            unsafe { command_queue::enqueue_unmap_mem_object(queue, memory, start, 0, ptr::null()) };
        // SAFETY: The call just gave this reference.
        drop(unmapped.map(|unmapped| unsafe { Event::owned(unmapped) }));
        let _ = command_queue::flush(queue); // or the memory is kept until the queue is used again
    }
}

impl fmt::Debug for PinnedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedMemory {{ {} bytes at {:p} }}", self.len, self.start)
    }
}
