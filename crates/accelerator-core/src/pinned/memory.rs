//! The only calls that take host memory from the driver and give it back.
#![allow(unsafe_code)] // `Backend::dealloc_host`

use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::backend::Backend;
use crate::types::DriverResult;

/// Host memory of the driver. Not `Copy`: whoever has it alone may use it or give it back.
pub(super) struct Block {
    start: NonNull<u8>,
    size: NonZeroU64,
}

// SAFETY: It names memory that no thread owns; what is done with the bytes is proven where it is done.
unsafe impl Send for Block {}
// SAFETY: Shared, it only tells where the memory is.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn size(&self) -> NonZeroU64 {
        self.size
    }
}

pub(super) fn take<B: Backend>(backend: &B, size: NonZeroU64) -> DriverResult<Block> {
    Ok(Block { start: backend.alloc_host(size)?, size })
}

/// For a block that no buffer has and no stream uses any more.
pub(super) fn give_back<B: Backend>(backend: &B, block: Block) {
    // SAFETY: A `Block` is made only by `take`, and ends here, so it is given back once. It comes from a free list, or was
    // about to go there: a block comes there from its buffer's drop, and when other streams used it only after the
    // events behind their uses are complete.
    unsafe { backend.dealloc_host(block.start, block.size) }
}
