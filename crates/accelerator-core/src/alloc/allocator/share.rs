//! Allocations that other processes import.
#![allow(unsafe_code)] // whoever uses a key vouches for it

use super::{Allocation, AllocationKey, CachingAllocator};
use crate::backend::Backend;
use crate::share::SharedMemory;
use crate::types::Result;

impl<B: Backend> CachingAllocator<B> {
    /// Shares an allocation with other processes.
    pub(crate) fn share(&self, allocation: &Allocation<B>) -> Result<SharedMemory> {
        self.device.share(allocation.arena, allocation.block, allocation.requested.get())
    }

    /// Shares an allocation, and what rounding added to it, with other processes. Each call makes another handle.
    ///
    /// # Errors
    /// [`Error::Sharing`](crate::Error::Sharing) if the memory cannot be shared;
    /// [`Error::MemPool`](crate::Error::MemPool) if it is paused; [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// * As for [`free_by_key`](Self::free_by_key).
    /// * The allocation is not freed before the value is dropped that the caller passes to
    ///   [`SharedMemory::withdraw`].
    pub unsafe fn share_by_key(&self, key: AllocationKey) -> Result<SharedMemory> {
        let (arena, block) = key.parts();
        let size = self.device.arenas().of(arena).lock().store().allocated(block).size;
        self.device.share(arena, block, size)
    }
}
