#![allow(unsafe_code)] // the trait of sources is unsafe to implement

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use accelerator_core::{Backend, DriverResult, SegmentSource};

/// The segments of a private pool with an allocator of its own, which takes them from the driver and counts its calls.
#[derive(Debug)]
pub struct DriverSource<B: Backend> {
    backend: &'static B,
    allocs: AtomicU64,
    deallocs: AtomicU64,
}

impl<B: Backend> DriverSource<B> {
    /// Makes a source that takes memory from this backend.
    pub fn new(backend: &'static B) -> Self {
        Self { backend, allocs: AtomicU64::new(0), deallocs: AtomicU64::new(0) }
    }

    /// Returns the number of calls that asked for memory, including those that got none.
    pub fn allocs(&self) -> u64 {
        self.allocs.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that gave memory back.
    pub fn deallocs(&self) -> u64 {
        self.deallocs.load(Ordering::Relaxed)
    }
}

// SAFETY: The memory is that of `Backend::alloc`, which promises the same.
unsafe impl<B: Backend> SegmentSource<B::Ptr> for DriverSource<B> {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<B::Ptr> {
        self.allocs.fetch_add(1, Ordering::Relaxed);
        self.backend.alloc(len)
    }

    unsafe fn dealloc(&self, ptr: B::Ptr, len: NonZeroU64) {
        self.deallocs.fetch_add(1, Ordering::Relaxed);
        // SAFETY: The caller promises the same for `alloc` above, which passed the call on.
        unsafe { self.backend.dealloc(ptr, len) };
    }
}
