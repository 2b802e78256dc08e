//! Host memory that the device reads and writes directly.
#![allow(unsafe_code)] // memory of the driver

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Mutex;

use accelerator_core::DriverResult;
use ash::vk;

use crate::device::lock;
use crate::memory::{Allocation, Memory};

/// Buffers that are mapped as long as they live, by their addresses in host memory.
#[derive(Debug, Default)]
pub(crate) struct PinnedMemory(Mutex<BTreeMap<usize, Block>>);

#[derive(Debug)]
struct Block {
    made: Allocation,
    len: u64,
}

impl PinnedMemory {
    /// Allocates pinned memory, initialised to 0. It is aligned to at least 64 bytes, as Vulkan demands of
    /// `minMemoryMapAlignment`.
    pub(crate) fn alloc(&self, memory: &Memory, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let (made, start) = memory.pinned(len.get())?;
        // SAFETY: At least `len` bytes are mapped there, and nobody else knows them yet.
        unsafe { start.write_bytes(0, len.get() as usize) };
        lock(&self.0).insert(start.addr().get(), Block { made, len: len.get() });
        Ok(start)
    }

    /// Frees pinned memory.
    ///
    /// # Safety
    /// * `start` comes from `alloc` with the same `memory`, was not freed since, and nothing uses the memory.
    pub(crate) unsafe fn dealloc(&self, memory: &Memory, start: NonNull<u8>) {
        let block = lock(&self.0).remove(&start.addr().get());
        if let Some(block) = block {
            // SAFETY: The caller promises that nothing uses it.
            unsafe { memory.free(block.made) };
        }
    }

    /// Returns the buffer and the offset of host memory that is pinned throughout.
    pub(crate) fn find(&self, start: NonNull<u8>, len: u64) -> Option<(vk::Buffer, u64)> {
        let start = start.addr().get();
        let blocks = lock(&self.0);
        let (first, block) = blocks.range(..=start).next_back()?;
        let offset = (start - first) as u64;
        let end = offset.checked_add(len)?;
        (end <= block.len).then_some((block.made.buffer, offset))
    }

    pub(crate) fn take_all(&self) -> Vec<Allocation> {
        std::mem::take(&mut *lock(&self.0)).into_values().map(|block| block.made).collect()
    }
}
