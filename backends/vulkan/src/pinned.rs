//! Host memory that the device reads and writes directly.
#![allow(unsafe_code)] // memory of the driver

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{SegmentTable, lock};
use ash::vk;

use crate::memory::{Allocation, Memory};

/// Buffers that are mapped as long as they live, by their addresses in host memory.
#[derive(Debug, Default)]
pub(crate) struct PinnedMemory(Mutex<SegmentTable<Allocation>>);

impl PinnedMemory {
    /// Allocates pinned memory, initialised to 0. It is aligned to at least 64 bytes, as Vulkan demands of
    /// `minMemoryMapAlignment`.
    pub(crate) fn alloc(&self, memory: &Arc<Memory>, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let (made, start) = memory.pinned(len.get())?;
        // SAFETY: At least `len` bytes are mapped there, and nobody else knows them yet.
        unsafe { start.write_bytes(0, len.get() as usize) };
        lock(&self.0).insert(address(start), len, made);
        Ok(start)
    }

    /// Frees pinned memory, which nothing may use any more.
    pub(crate) fn dealloc(&self, start: NonNull<u8>) {
        let made = lock(&self.0).remove(address(start));
        drop(made); // without the lock, since this calls the driver
    }

    /// Returns the buffer and the offset of host memory that is pinned throughout.
    pub(crate) fn find(&self, start: NonNull<u8>, len: u64) -> Option<(vk::Buffer, u64)> {
        let blocks = lock(&self.0);
        blocks.find_range(address(start), len).map(|(made, offset)| (made.buffer, offset))
    }
}

fn address(start: NonNull<u8>) -> u64 {
    start.addr().get() as u64
}
