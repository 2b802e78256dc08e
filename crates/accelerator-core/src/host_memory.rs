//! Ordinary host memory, for devices that have no pinned memory or do not need it.
#![allow(unsafe_code)] // memory of the system

use std::alloc::Layout;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::types::{DriverError, DriverErrorKind, DriverResult};

/// The page size of common systems.
const ALIGNMENT: usize = 4096;

pub(crate) fn alloc(len: NonZeroU64) -> DriverResult<NonNull<u8>> {
    let no_memory = DriverError::new(DriverErrorKind::OutOfMemory, "malloc", 12, "ENOMEM");
    let layout = layout(len).ok_or(no_memory)?;
    // SAFETY: The size of the layout is not 0.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(start).ok_or(no_memory)
}

/// # Safety
/// `ptr` and `len` are those of one [`alloc`], and the memory has not been given back since.
pub(crate) unsafe fn dealloc(ptr: NonNull<u8>, len: NonZeroU64) {
    if let Some(layout) = layout(len) {
        // SAFETY: `alloc` allocated it with this layout, and the caller gives it back once.
        unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
    }
}

fn layout(len: NonZeroU64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(len.get()).ok()?, ALIGNMENT).ok()
}
