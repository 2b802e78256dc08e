//! Pinned memory through which copies of pageable memory go.
#![allow(unsafe_code)] // memory of the driver

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::lock;
use accelerator_core::{DriverResult, KIB, MIB};
use ash::vk;

use crate::memory::{Allocation, Memory};

/// The sizes of blocks. Larger copies are made in parts.
const SMALL: u64 = 64 * KIB;
pub(crate) const LARGE: u64 = 4 * MIB;
const SIZES: [u64; 2] = [SMALL, LARGE];
/// The number of unused blocks of each size that are kept.
const KEPT: usize = 8;
/// A stream that has submitted copies waits for them while blocks of more than this many bytes are in use.
const MANY: u64 = 64 * MIB;

/// Blocks that no copy uses, by size.
pub(crate) struct Staging {
    memory: Arc<Memory>,
    unused: Mutex<[Vec<Block>; 2]>,
    /// The bytes of the blocks in use.
    used: AtomicU64,
}

/// A block. It goes back when it is dropped, so it lives until the work that uses it is over.
pub(crate) struct StagingBlock {
    pool: Arc<Staging>,
    block: Option<Block>,
    buffer: vk::Buffer,
    start: NonNull<u8>,
    class: usize,
}

struct Block {
    made: Allocation,
    start: NonNull<u8>,
}

// SAFETY: The memory belongs to the block, and any thread may access it.
unsafe impl Send for Block {}
// SAFETY: The block itself does not access its memory.
unsafe impl Sync for Block {}
// SAFETY: As for `Block`.
unsafe impl Send for StagingBlock {}
// SAFETY: As for `Block`.
unsafe impl Sync for StagingBlock {}

impl Staging {
    pub(crate) fn new(memory: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::clone(memory), unused: Mutex::default(), used: AtomicU64::new(0) })
    }

    /// Returns a block for parts of a copy of `len` bytes.
    pub(crate) fn block(self: &Arc<Self>, len: u64) -> DriverResult<StagingBlock> {
        let class = usize::from(len > SMALL);
        let unused = lock(&self.unused)[class].pop();
        let block = match unused {
            Some(block) => block,
            None => {
                let (made, start) = self.memory.pinned(SIZES[class])?;
                Block { made, start }
            }
        };
        self.used.fetch_add(SIZES[class], Ordering::Relaxed);
        let (buffer, start) = (block.made.buffer, block.start);
        Ok(StagingBlock { pool: Arc::clone(self), block: Some(block), buffer, start, class })
    }

    /// Whether so much is in use that the next copy should wait for earlier ones.
    pub(crate) fn is_busy(&self) -> bool {
        self.used.load(Ordering::Relaxed) > MANY
    }

    /// Frees the unused blocks. Returns whether there were any.
    pub(crate) fn trim(&self) -> bool {
        let unused = std::mem::take(&mut *lock(&self.unused));
        unused.into_iter().flatten().count() > 0
    }
}

impl StagingBlock {
    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.buffer
    }

    /// The block's memory as the host sees it.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for StagingBlock {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        self.pool.used.fetch_sub(SIZES[self.class], Ordering::Relaxed);
        let mut unused = lock(&self.pool.unused);
        let blocks = &mut unused[self.class];
        if blocks.len() < KEPT {
            blocks.push(block);
        } // otherwise it is freed, since work that used it is over
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").finish_non_exhaustive()
    }
}

impl fmt::Debug for StagingBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StagingBlock").field(&self.buffer).finish()
    }
}
