//! Allocation by pointer, for programs that cannot store an [`Allocation`]. PyTorch: `raw_alloc`, `raw_delete`.

use std::num::NonZeroU64;

use super::{Allocation, CachingAllocator};
use crate::backend::Backend;
use crate::stream::Stream;
use crate::sync::primitives::lock;
use crate::types::{DevicePtr, Error, Result};

impl<B: Backend> CachingAllocator<B> {
    /// Allocates memory by pointer. For zero bytes, returns `None` and counts nothing.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub fn raw_alloc(&self, bytes: u64, stream: Stream<B>) -> Result<Option<B::Ptr>> {
        let Some(bytes) = NonZeroU64::new(bytes) else {
            stream.check(self.owner)?;
            return Ok(None);
        };
        let allocation = self.allocate(bytes, stream)?;
        let ptr = allocation.ptr();
        lock(&self.raw).insert(ptr, allocation);
        Ok(Some(ptr))
    }

    /// Frees memory from [`raw_alloc`](Self::raw_alloc).
    ///
    /// # Errors
    /// [`Error::UnknownPointer`], with nothing changed, if the pointer is not allocated, already freed or foreign.
    pub fn raw_free(&self, ptr: B::Ptr) -> Result<()> {
        let allocation = lock(&self.raw).remove(&ptr).ok_or_else(|| self.unknown(ptr))?;
        Ok(self.free(allocation)?)
    }

    /// Records that `stream` uses memory from [`raw_alloc`](Self::raw_alloc). PyTorch: `recordStream`.
    ///
    /// # Errors
    /// [`Error::UnknownPointer`], [`Error::DeviceMismatch`].
    pub fn raw_record_use(&self, ptr: B::Ptr, stream: Stream<B>) -> Result<()> {
        let table = lock(&self.raw);
        self.record_use(table.get(&ptr).ok_or_else(|| self.unknown(ptr))?, stream)
    }

    /// Returns the size of the block behind the pointer: the requested bytes, rounded up.
    ///
    /// # Errors
    /// [`Error::UnknownPointer`].
    pub fn raw_size(&self, ptr: B::Ptr) -> Result<u64> {
        lock(&self.raw).get(&ptr).map(Allocation::size).ok_or_else(|| self.unknown(ptr))
    }

    fn unknown(&self, ptr: B::Ptr) -> Error {
        Error::UnknownPointer { device: self.owner.device, address: ptr.trace_address() }
    }
}
