//! The only calls that take segments from the driver and give them back.
#![allow(unsafe_code)] // `Backend::dealloc`

use std::num::NonZeroU64;

use super::whole::Detached;
use crate::backend::{Backend, DriverResult};

pub(super) fn take<B: Backend>(backend: &B, size: u64) -> DriverResult<B::Ptr> {
    // Sizes are rounded up to at least 512 bytes: never 0.
    backend.alloc(NonZeroU64::new(size).unwrap_or(NonZeroU64::MIN))
}

pub(super) fn give_back<B: Backend>(backend: &B, segment: Detached<B::Ptr>) {
    let size = NonZeroU64::new(segment.size).unwrap_or(NonZeroU64::MIN);
    // SAFETY: A `Detached` is made only by `Arena::detach` and `detach_segment`, which take the segment, as `take` gave it, out
    // of the books, so that it is given back once; all of it was free, so no work on it is submitted any more.
    unsafe { backend.dealloc(segment.ptr, size) }
}
