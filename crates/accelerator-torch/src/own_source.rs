//! Pools that get their segments from an allocator of PyTorch's: `torch.cuda.MemPool(allocator)`.
#![allow(unsafe_code)] // exported functions

use std::ffi::{c_int, c_void};
use std::num::NonZeroU64;
use std::sync::Arc;

use accelerator_core::{DevicePtr, DriverError, DriverErrorKind, DriverResult, SegmentSource};
use accelerator_cuda::CudaPtr;

use crate::boundary::status;
use crate::devices::device;
use crate::pools::{self, PoolNumber};

/// Allocates this many bytes on the current device; 0 if there are none.
type Alloc = extern "C" fn(*mut c_void, u64) -> u64;
type Free = extern "C" fn(*mut c_void, u64);
type Release = extern "C" fn(*mut c_void);

/// An allocator of C++, with its state.
struct Source {
    alloc: Alloc,
    free: Free,
    release: Release,
    state: *mut c_void,
}

// SAFETY: PyTorch calls its allocators from any thread itself.
unsafe impl Send for Source {}
// SAFETY: As for `Send`.
unsafe impl Sync for Source {}

// SAFETY: The allocator's user promises that it returns memory of the device.
unsafe impl SegmentSource<CudaPtr> for Source {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<CudaPtr> {
        let address = (self.alloc)(self.state, len.get());
        let none =
            || DriverError::refused(DriverErrorKind::OutOfMemory, "MemPool", "the pool's allocator has no memory");
        (address != 0).then(|| CudaPtr::from_native(address)).ok_or_else(none)
    }

    unsafe fn dealloc(&self, ptr: CudaPtr, _: NonZeroU64) {
        (self.free)(self.state, ptr.trace_address());
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        (self.release)(self.state);
    }
}

/// Adds a use of a pool whose segments come from an allocator. PyTorch: `createOrIncrefPool`.
///
/// # Safety
/// `alloc` and `free` may be called with `state` from any thread, until `release` is called with it, once. What `alloc`
/// returns is memory of the device with this many bytes, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_retain_with_source(
    index: c_int,
    pool: PoolNumber,
    alloc: Alloc,
    free: Free,
    release: Release,
    state: *mut c_void,
) -> c_int {
    let source = Arc::new(Source { alloc, free, release, state });
    status(|| {
        let device = device(index)?;
        device.allocator().retain_pool_with_source(pool.id(), source)?;
        pools::keep(device, pool.id())
    })
}
