//! The only driver calls that allocate and free host memory.
#![allow(unsafe_code)] // `Backend::dealloc_host`

use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::backend::Backend;
use crate::types::DriverResult;

/// Host memory from the driver. It is not `Copy`: only its owner may use it or give it back.
pub(super) struct Block {
    start: NonNull<u8>,
    size: NonZeroU64,
}

// SAFETY: It names memory that no thread owns. Each access to the bytes has its own proof.
unsafe impl Send for Block {}
// SAFETY: A shared reference only tells where the memory is.
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

/// Gives back a block that no buffer owns and no stream uses any more.
pub(super) fn give_back<B: Backend>(backend: &B, block: Block) {
    // SAFETY: Only `take` makes a `Block`, and this function consumes it, so the memory is given back once. The block
    // comes from a free list, or was about to enter one: it enters one when its buffer is dropped or, if streams used
    // it, when the events after their uses are complete.
    unsafe { backend.dealloc_host(block.start, block.size) }
}
