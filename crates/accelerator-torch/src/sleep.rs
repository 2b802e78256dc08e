//! Pools with a name, whose memory can be given back to the driver for a while.
#![allow(unsafe_code)] // exported functions

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use accelerator_core::{Keep, MemPool, MemPoolOptions, PauseReport};

use crate::boundary::{or, status};
use crate::devices::device;
use crate::driver::Driver;
use crate::pools::PoolNumber;

/// Names a pool without memory, and makes it pausable. The handle that is written is to be dropped with
/// [`accelerator_torch_pool_drop`].
///
/// # Safety
/// `name` is a text that ends in a zero byte, and `handle` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_open(
    index: c_int,
    pool: PoolNumber,
    name: *const c_char,
    handle: *mut *mut c_void,
) -> c_int {
    // SAFETY: The caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    status(|| {
        let options = MemPoolOptions { name: Some(name.into()), pausable: true, ..MemPoolOptions::default() };
        let pool = MemPool::with_id(device(index)?, pool.id(), options)?;
        // SAFETY: The caller's promise.
        unsafe { handle.write(Box::into_raw(Box::new(pool)).cast()) };
        Ok(())
    })
}

/// Drops a handle.
///
/// # Safety
/// It came from [`accelerator_torch_pool_open`] and has not been dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_drop(handle: *mut c_void) {
    // SAFETY: The caller's promise.
    or((), || drop(unsafe { Box::from_raw(handle.cast::<MemPool<Driver>>()) }));
}

/// What becomes of the contents of a paused pool: nothing, host memory, or the file of a path.
const KEEP_NOTHING: c_int = 0;
const KEEP_IN_HOST: c_int = 1;

/// What pausing or resuming did.
#[repr(C)]
pub struct Report {
    /// The bytes that went back to the driver, or came from it.
    bytes: u64,
    nanoseconds: u64,
}

impl Report {
    fn of(report: PauseReport) -> Self {
        Self { bytes: report.bytes, nanoseconds: report.duration.as_nanos() as u64 }
    }
}

/// Gives a pool's memory back to the driver. `keep` is 0 to discard its contents, 1 to keep them in host memory, and
/// else they are kept in the file `path`, which must not exist.
///
/// # Safety
/// The handle has not been dropped, `path` is a text that ends in a zero byte or, if `keep` is 0 or 1, anything, and
/// `report` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_pause(
    handle: *const c_void,
    keep: c_int,
    path: *const c_char,
    report: *mut Report,
) -> c_int {
    // SAFETY: The caller's promise.
    let pool = unsafe { &*handle.cast::<MemPool<Driver>>() };
    status(|| {
        let keep = match keep {
            KEEP_NOTHING => Keep::Nothing,
            KEEP_IN_HOST => Keep::Host,
            // SAFETY: The caller's promise.
            _ => Keep::File(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()).into()),
        };
        let paused = Report::of(pool.pause(keep)?);
        // SAFETY: The caller's promise.
        unsafe { report.write(paused) };
        Ok(())
    })
}

/// Maps memory at the addresses of a paused pool again, with what was kept.
///
/// # Safety
/// The handle has not been dropped, and `report` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_resume(handle: *const c_void, report: *mut Report) -> c_int {
    // SAFETY: The caller's promise.
    let pool = unsafe { &*handle.cast::<MemPool<Driver>>() };
    status(|| {
        let resumed = Report::of(pool.resume()?);
        // SAFETY: The caller's promise.
        unsafe { report.write(resumed) };
        Ok(())
    })
}
