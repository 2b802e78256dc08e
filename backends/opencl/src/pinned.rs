//! Host memory that the driver chooses for fast copies to and from the device.
#![allow(unsafe_code)] // the driver's memory

use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{SegmentTable, byte_count, lock, try_twice};
use cl3::types::CL_BLOCKING;
use cl3::{command_queue, error_codes, memory};

use crate::answer;
use crate::handle::{Event, Memory};
use crate::opencl::OpenCl;

/// Buffer objects that are mapped as long as they live, by their addresses in host memory.
#[derive(Debug, Default)]
pub(crate) struct PinnedMemory(Mutex<SegmentTable<Memory>>);

impl PinnedMemory {
    /// Whether host memory is pinned throughout.
    pub(crate) fn contains(&self, start: NonNull<u8>, len: usize) -> bool {
        lock(&self.0).find_range(address(start), len as u64).is_some()
    }
}

impl OpenCl {
    /// Allocates pinned memory, initialized to 0. OpenCL: `CL_MEM_ALLOC_HOST_PTR`, mapped.
    pub(crate) fn pin(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let memory = self.buffer(memory::CL_MEM_READ_WRITE | memory::CL_MEM_ALLOC_HOST_PTR, len)?;
        let (size, none) = (byte_count(len), ptr::null());
        let (flags, mut start) = (memory::CL_MAP_READ | memory::CL_MAP_WRITE, ptr::null_mut());
        let (to, of) = (self.own.raw(), memory.raw());
        // SAFETY: The queue and the buffer object are alive, and the range covers the whole object.
        let mapped =
            unsafe { command_queue::enqueue_map_buffer(to, of, CL_BLOCKING, flags, 0, size, &mut start, 0, none) };
        // SAFETY: The call has just returned this reference.
        drop(unsafe { Event::owned(answer::of_allocation("clEnqueueMapBuffer", mapped)?) });
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| answer::error("clEnqueueMapBuffer", error_codes::CL_MAP_FAILURE))?;
        // SAFETY: `len` bytes are mapped there for reading and writing.
        unsafe { start.write_bytes(0, size) };
        lock(&self.pinned.0).insert(address(start), len, memory);
        Ok(start)
    }

    /// Frees pinned memory.
    ///
    /// # Safety
    /// * `start` was returned by [`pin`](Self::pin) and not unpinned since, and nothing uses the memory any more.
    pub(crate) unsafe fn unpin(&self, start: NonNull<u8>) {
        let pinned = lock(&self.pinned.0).remove(address(start));
        let Some(memory) = pinned else { return };
        let (queue, object, start) = (self.own.raw(), memory.raw(), start.as_ptr().cast());
        try_twice(|| {
            // SAFETY: The object is mapped there, and nothing uses it any more.
            let unmapped = unsafe { command_queue::enqueue_unmap_mem_object(queue, object, start, 0, ptr::null()) };
            // SAFETY: The call has just returned this reference.
            answer::of("clEnqueueUnmapMemObject", unmapped).map(|unmapped| drop(unsafe { Event::owned(unmapped) }))
        });
        let _ = command_queue::flush(queue); // otherwise the memory is kept until the queue is used again
    }
}

fn address(start: NonNull<u8>) -> u64 {
    start.addr().get() as u64
}
