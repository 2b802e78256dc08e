//! Memory that other processes import, and memory of theirs.
//!
//! PyTorch shares a tensor with another process and keeps it until that process has dropped its own. If the tensor is
//! freed all the same, its memory stays until the import ends.
#![allow(unsafe_code)] // exported functions

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    AllocationKey, Backend, Buffer, DevicePtr, Error, MemoryHandle, Result, SharedMemory, SharingProblem,
};

use crate::boundary::{or, status};
use crate::devices::{self, Device, device};
use crate::driver::Driver;
use crate::memory::allocation_at;

/// The memory that is shared, by its address.
static SHARED: Mutex<Option<HashMap<u64, SharedMemory>>> = Mutex::new(None);

/// How much of it there is, so that frees need not look there.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The name of shared memory for other processes.
#[repr(C)]
pub struct Handle {
    bytes: [u8; 64],
    size: usize,
}

/// Shares the memory that starts at this address. While it is not freed, it has one handle.
///
/// # Safety
/// The memory is allocated, and `handle` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_share(address: u64, handle: *mut Handle) -> c_int {
    status(|| {
        let named = share(address)?;
        let mut bytes = [0; 64];
        let size = named.as_bytes().len().min(bytes.len());
        bytes[..size].copy_from_slice(&named.as_bytes()[..size]);
        // SAFETY: The caller's promise.
        unsafe { handle.write(Handle { bytes, size }) };
        Ok(())
    })
}

fn share(address: u64) -> Result<MemoryHandle> {
    if let Some(known) = lock(&SHARED).as_ref().and_then(|shared| shared.get(&address)) {
        return Ok(known.handle().clone());
    }
    let device = accelerator_core::Device { kind: Driver::KIND, index: 0 };
    let (device, key) = allocation_at(address).ok_or(Error::UnknownPointer { device, address })?;
    // SAFETY: The caller of the exported function says that it is allocated. `keeps` frees it only when nobody imports
    // it any more.
    let new = unsafe { device.allocator().share_by_key(key) }?;
    let mut shared = lock(&SHARED);
    let known = shared.get_or_insert_default().entry(address).or_insert_with(|| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        new // another thread may have shared it meanwhile: then this is dropped
    });
    Ok(known.handle().clone())
}

/// An allocation, to be freed when this is dropped.
struct Kept {
    device: Device,
    key: AllocationKey,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: `keeps` got it from a caller that gives it up.
        unsafe { self.device.allocator().free_by_key(self.key) };
    }
}

/// If an allocation that is to be freed is shared, keeps it until nobody imports it any more. Returns whether it does.
///
/// # Safety
/// As for [`accelerator_torch_free`](crate::memory::accelerator_torch_free).
#[inline(always)]
pub(crate) unsafe fn keeps(device: Device, key: AllocationKey) -> bool {
    // The thread that shared the memory, or one that learned of it from there, frees it. So it sees that count.
    COUNT.load(Ordering::Relaxed) > 0 && withdraw(device, key)
}

#[cold]
fn withdraw(device: Device, key: AllocationKey) -> bool {
    // SAFETY: The caller of `keeps` says that it is allocated.
    let (ptr, _) = unsafe { device.allocator().block_by_key(key) };
    let shared = lock(&SHARED).as_mut().and_then(|shared| shared.remove(&ptr.trace_address()));
    let Some(shared) = shared else { return false };
    COUNT.fetch_sub(1, Ordering::Relaxed);
    shared.withdraw(Box::new(Kept { device, key }));
    true
}

/// Memory of another process.
#[repr(C)]
pub struct Import {
    address: u64,
    /// For [`accelerator_torch_import_drop`].
    owner: *mut c_void,
}

/// Imports memory of another process for a device.
///
/// # Safety
/// `bytes` has `size` bytes, and `import` is writable. The programs order the work of both processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_import(
    bytes: *const u8,
    size: usize,
    index: c_int,
    import: *mut Import,
) -> c_int {
    status(|| {
        let device = device(index)?;
        // SAFETY: The caller's promise.
        let handle = MemoryHandle::from_bytes(unsafe { std::slice::from_raw_parts(bytes, size) });
        // SAFETY: The caller's promise.
        let buffer = unsafe { device.import(&handle, device.default_stream()) }?;
        let nothing = Error::Sharing { device: device.device(), problem: SharingProblem::NoAnswer };
        let address = buffer.ptr().ok_or(nothing)?.trace_address();
        let owner = Box::into_raw(Box::new(buffer)).cast();
        // SAFETY: The caller's promise.
        unsafe { import.write(Import { address, owner }) };
        Ok(())
    })
}

/// Ends an import. The caller has waited for the work of all streams, unless one captures. Then the import ends after
/// the captures of the streams for which this library has allocated memory.
///
/// # Safety
/// `owner` came from [`accelerator_torch_import`] and has not been dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_import_drop(owner: *mut c_void) {
    or((), || {
        // SAFETY: The caller's promise.
        let buffer = unsafe { Box::from_raw(owner.cast::<Buffer<Driver>>()) };
        for stream in devices::streams(buffer.accelerator()) {
            let _ = buffer.record_use(stream); // a stream of the same device
        }
        drop(buffer);
    });
}
