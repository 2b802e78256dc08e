//! The allocator's allocations.

use std::num::NonZeroU64;

use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::BlockId;
use crate::backend::Backend;
use crate::stream::Stream;
use crate::types::Error;

/// An allocated block: its location, and the key to free it.
///
/// It is not a guard: if it is dropped without [`free`](super::CachingAllocator::free), its memory stays allocated.
/// [`Buffer`](crate::Buffer) frees its memory when dropped.
#[must_use = "dropping it leaks the memory: free it, or use a Buffer"]
pub struct Allocation<B: Backend> {
    pub(super) arena: ArenaId,
    pub(super) block: BlockId,
    pub(super) ptr: B::Ptr,
    pub(super) size: u64,
    pub(super) requested: NonZeroU64,
    pub(super) stream: Stream<B>,
}

impl<B: Backend> Allocation<B> {
    /// Returns the start of the memory.
    pub fn ptr(&self) -> B::Ptr {
        self.ptr
    }

    /// Returns the size of the block: the requested bytes, rounded up.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of bytes requested.
    pub fn requested(&self) -> NonZeroU64 {
        self.requested
    }

    /// Returns the stream that it was allocated on.
    pub fn stream(&self) -> Stream<B> {
        self.stream
    }
}

/// The error of passing an allocation to another device's allocator to free. Converting it into an [`Error`] drops the
/// allocation, whose memory then stays allocated.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct ForeignAllocation<B: Backend> {
    /// The allocation, still allocated.
    pub allocation: Allocation<B>,
    /// [`Error::DeviceMismatch`].
    pub error: Error,
}

impl<B: Backend> From<ForeignAllocation<B>> for Error {
    fn from(foreign: ForeignAllocation<B>) -> Self {
        foreign.error
    }
}

impl<B: Backend> std::fmt::Debug for ForeignAllocation<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<B: Backend> std::fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ptr, size, requested, stream, .. } = self;
        write!(f, "Allocation {{ {ptr:?}, size: {size}, requested: {requested}, {stream:?} }}")
    }
}
