//! Level Zero itself, as another library in the program uses it.
#![allow(unsafe_code)] // calls its functions

use std::ffi::c_void;
use std::ptr;

use accelerator_core::DriverResult;
use accelerator_xpu::{Xpu, sys};

/// Calls a function that every loader has.
macro_rules! ze {
    ($backend:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $backend.level_zero().$name().unwrap();
        // SAFETY: Trials pass handles that they created, or addresses that the simulated driver does not dereference.
        accelerator_xpu::answer(stringify!($name), unsafe { function($($argument),*) })
    }};
}
pub(crate) use ze;

/// Allocates memory of the device without the backend.
pub(crate) fn allocate(backend: &Xpu, len: usize) -> DriverResult<*mut c_void> {
    let (_, device, context) = backend.native();
    let (description, mut at) = (sys::ze_device_mem_alloc_desc_t::default(), ptr::null_mut());
    ze!(backend, zeMemAllocDevice(context, &description, len, 0, device, &mut at))?;
    Ok(at)
}

pub(crate) fn free(backend: &Xpu, at: *mut c_void) -> DriverResult<()> {
    ze!(backend, zeMemFree(backend.native().2, at))
}

/// Creates an unordered immediate command list in the backend's context.
pub(crate) fn list(backend: &Xpu) -> DriverResult<sys::ze_command_list_handle_t> {
    let (_, device, context) = backend.native();
    let mode = sys::ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    let (description, mut list) = (sys::ze_command_queue_desc_t { mode, ..Default::default() }, ptr::null_mut());
    ze!(backend, zeCommandListCreateImmediate(context, device, &description, &mut list))?;
    Ok(list)
}

/// Fills memory with a byte, after all commands of the list. Level Zero does not order the commands of a list.
pub(crate) fn fill(
    backend: &Xpu,
    list: sys::ze_command_list_handle_t,
    at: *mut c_void,
    value: u8,
    len: usize,
) -> DriverResult<()> {
    let none = ptr::null_mut();
    ze!(backend, zeCommandListAppendBarrier(list, none, 0, ptr::null_mut()))?;
    let value = (&raw const value).cast();
    ze!(backend, zeCommandListAppendMemoryFill(list, at, value, 1, len, none, 0, ptr::null_mut()))
}
