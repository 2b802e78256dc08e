//! Memory for a library that takes the addresses of functions without a device and a stream, such as ONNX Runtime
//! (`gpu_external_alloc`, `gpu_external_free` and `gpu_external_empty_cache` of its CUDA provider).
#![allow(unsafe_code)] // exported functions

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, Device, DriverError, DriverErrorKind, Error};

use crate::boundary::status;
use crate::driver::{Driver, check_handle};
use crate::memory::{accelerator_torch_raw_allocate, accelerator_torch_raw_free};
use crate::pools::{PoolNumber, accelerator_torch_empty_cache};

/// The device, and the stream on which the library works.
static USED: Mutex<Option<(c_int, usize)>> = Mutex::new(None);

/// Sets the device and the stream for which the functions below allocate. Fails for another device than before.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_external_use(index: c_int, stream: *mut c_void) -> c_int {
    status(|| {
        let mut used = lock(&USED);
        let one = || DriverError::refused(DriverErrorKind::InvalidArgument, "a device", ONE_DEVICE);
        let fits = used.is_none_or(|(device, _)| device == index).then_some(()).ok_or_else(one);
        let device = Device { kind: Driver::KIND, index: index as u32 };
        fits.and_then(|()| check_handle(stream)).map_err(|source| Error::Driver { device, source })?;
        *used = Some((index, stream.expose_provenance()));
        Ok(())
    })
}

const ONE_DEVICE: &str = "ONNX Runtime can use this allocator on one device of a process: this is another one";

/// Allocates memory. Returns null if there is none.
///
/// # Safety
/// The stream of [`accelerator_torch_external_use`] is one of its device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_external_alloc(size: usize) -> *mut c_void {
    let (index, stream) = lock(&USED).unwrap_or_default();
    let mut address = 0;
    // SAFETY: The caller's promise. After an error, the address is 0.
    unsafe { accelerator_torch_raw_allocate(size, index, ptr::with_exposed_provenance_mut(stream), &mut address) };
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Frees memory.
///
/// # Safety
/// It came from [`accelerator_torch_external_alloc`] and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_external_free(ptr: *mut c_void) {
    // SAFETY: The caller's promise.
    unsafe { accelerator_torch_raw_free(ptr.addr() as u64) };
}

/// Gives free memory back to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_external_empty_cache() {
    accelerator_torch_empty_cache(PoolNumber::NONE);
}
