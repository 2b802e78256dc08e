//! The driver's library, loaded at run time.
#![allow(unsafe_code)] // loads a library

use std::sync::OnceLock;

use cudarc::driver::sys;

/// Whether this machine has a driver.
pub(crate) fn is_there() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: Loading the NVIDIA driver runs only its own initialization code.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// Whether the driver has a function of this name.
pub(crate) fn has(name: &str) -> bool {
    // SAFETY: The function is not called.
    unsafe { function::<unsafe extern "C" fn()>(name) }.is_some()
}

/// Returns a function of the driver, or `None` if there is no driver or it is too old to have this function.
///
/// # Safety
/// * `F` is a function pointer, and if it is called, of the type that CUDA documents for this name.
pub(crate) unsafe fn function<F: Copy>(name: &str) -> Option<F> {
    if !is_there() {
        return None; // the next line would panic
    }
    // SAFETY: See `is_there`.
    let library = unsafe { sys::culib() };
    // SAFETY: The caller promises the type, and the library is never unloaded.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|function| *function)
}
