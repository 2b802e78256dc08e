//! Pinned memory through which copies of pageable memory go.
#![allow(unsafe_code)] // memory of the driver

use std::ptr::NonNull;
use std::sync::Arc;

use accelerator_core::backend_kit::{Pool, Pooled};
use accelerator_core::{DriverErrorKind, DriverResult, KIB, MIB};
use ash::vk;

use crate::memory::{Allocation, Memory};

/// The sizes of blocks. Larger copies are made in parts.
const SMALL: u64 = 64 * KIB;
pub(crate) const LARGE: u64 = 4 * MIB;
/// The number of unused blocks of each size that are kept.
const KEPT: usize = 8;
/// A stream that has submitted copies waits for them while blocks of more than this many bytes are in use.
const MANY: u64 = 64 * MIB;

/// Blocks of both sizes.
#[derive(Debug)]
pub(crate) struct Staging {
    memory: Arc<Memory>,
    small: Arc<Pool<Block>>,
    large: Arc<Pool<Block>>,
}

/// Pinned memory. The work that uses it keeps it.
#[derive(Debug)]
pub(crate) struct Block {
    made: Allocation,
    start: NonNull<u8>,
}

// SAFETY: The memory belongs to the block, and any thread may access it.
unsafe impl Send for Block {}
// SAFETY: The block itself does not access its memory.
unsafe impl Sync for Block {}

impl Staging {
    pub(crate) fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), small: Pool::new(KEPT), large: Pool::new(KEPT) }
    }

    /// Returns a block for parts of a copy of `len` bytes.
    pub(crate) fn block(&self, len: u64) -> DriverResult<Pooled<Block>> {
        let (pool, size) = if len > SMALL { (&self.large, LARGE) } else { (&self.small, SMALL) };
        pool.take(|| self.memory.pinned(size).map(|(made, start)| Block { made, start }))
    }

    /// Whether so much is in use that the next copy should wait for earlier ones.
    pub(crate) fn is_busy(&self) -> bool {
        self.small.in_use() as u64 * SMALL + self.large.in_use() as u64 * LARGE > MANY
    }

    /// Allocates memory of the driver. If there is too little, it tries once more without the unused blocks.
    pub(crate) fn retried<T>(&self, allocate: impl Fn() -> DriverResult<T>) -> DriverResult<T> {
        allocate().or_else(|error| match error.kind {
            DriverErrorKind::OutOfMemory if self.trim() => allocate(),
            _ => Err(error),
        })
    }

    /// Frees the unused blocks. Returns whether there were any.
    fn trim(&self) -> bool {
        let unused = [self.small.drain(), self.large.drain()];
        unused.iter().any(|blocks| !blocks.is_empty())
    }
}

impl Block {
    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.made.buffer
    }

    /// The block's memory as the host sees it.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}
