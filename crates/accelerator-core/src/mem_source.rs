//! Segments from somewhere else than the driver: a private pool may have its own source.

use std::num::NonZeroU64;

use crate::types::{DevicePtr, DriverResult};

/// Where a private pool gets its segments from, instead of from the driver. PyTorch: the allocator of
/// `torch.cuda.MemPool(allocator)`.
///
/// # Safety
/// The core hands out parts of this memory to safe code, so [`alloc`](Self::alloc) promises the same as
/// [`Backend::alloc`](crate::Backend::alloc).
#[allow(unsafe_code)] // the contract above is what makes the trait unsafe to implement
pub unsafe trait SegmentSource<P: DevicePtr>: Send + Sync {
    /// Takes `len` bytes. The core holds no lock. It must not request memory of the same device from the core: a
    /// request that a limit refuses would wait for the one that called this.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) is a normal result, as for
    /// [`Backend::alloc`](crate::Backend::alloc).
    fn alloc(&self, len: NonZeroU64) -> DriverResult<P>;

    /// Gives memory back. Work that was submitted before may still use it. On the same device, it must not request
    /// memory, begin a capture, pause, trim or set back pools, drop a [`MemPool`](crate::MemPool), or call
    /// [`empty_cache`](crate::CachingAllocator::empty_cache): they would wait for it.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one `alloc` of this source that has not been given back.
    /// * No work that uses the memory is submitted afterwards.
    unsafe fn dealloc(&self, ptr: P, len: NonZeroU64);
}
