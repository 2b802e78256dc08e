//! Allocation by pointer, for programs that cannot carry an [`Allocation`] along. PyTorch: `raw_alloc`, `raw_delete`.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Mutex;

use super::{Allocation, CachingAllocator};
use crate::backend::Backend;
use crate::stream::Stream;
use crate::sync::lock;
use crate::types::{DevicePtr, Error, Result};

/// The allocations that were given out as pointers.
pub(super) struct RawTable<B: Backend>(Mutex<HashMap<B::Ptr, Allocation<B>>>);

impl<B: Backend> Default for RawTable<B> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<B: Backend> CachingAllocator<B> {
    /// Allocates by pointer. Zero bytes are `None`, and nothing is counted.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn raw_alloc(&self, bytes: u64, stream: Stream<B>) -> Result<Option<B::Ptr>> {
        let Some(bytes) = NonZeroU64::new(bytes) else {
            stream.check(self.owner)?;
            return Ok(None);
        };
        let allocation = self.allocate(bytes, stream)?;
        let ptr = allocation.ptr();
        lock(&self.raw.0).insert(ptr, allocation);
        Ok(Some(ptr))
    }

    /// Frees what [`raw_alloc`](Self::raw_alloc) gave.
    ///
    /// # Errors
    /// [`Error::UnknownPointer`] for a pointer that is not allocated, freed before or foreign: nothing changes then.
    pub fn raw_free(&self, ptr: B::Ptr) -> Result<()> {
        let allocation = lock(&self.raw.0).remove(&ptr).ok_or_else(|| self.unknown(ptr))?;
        Ok(self.free(allocation)?)
    }

    /// Notes that `stream` uses what [`raw_alloc`](Self::raw_alloc) gave. PyTorch: `recordStream`.
    ///
    /// # Errors
    /// [`Error::UnknownPointer`], [`Error::DeviceMismatch`].
    pub fn raw_record_use(&self, ptr: B::Ptr, stream: Stream<B>) -> Result<()> {
        let table = lock(&self.raw.0);
        self.record_use(table.get(&ptr).ok_or_else(|| self.unknown(ptr))?, stream)
    }

    /// Bytes of the block behind the pointer: what was asked for, rounded up.
    ///
    /// # Errors
    /// [`Error::UnknownPointer`].
    pub fn raw_size(&self, ptr: B::Ptr) -> Result<u64> {
        lock(&self.raw.0).get(&ptr).map(Allocation::size).ok_or_else(|| self.unknown(ptr))
    }

    fn unknown(&self, ptr: B::Ptr) -> Error {
        Error::UnknownPointer { device: self.owner.device, address: ptr.trace_address() }
    }
}
