//! What crosses the boundary to C: numbers instead of errors, and no panic.
#![allow(unsafe_code)] // exported functions

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use accelerator_core::{Error, Result};

/// The call succeeded.
pub(crate) const DONE: c_int = 0;
/// There is not enough memory.
const OUT_OF_MEMORY: c_int = 1;
/// Any other error.
const FAILED: c_int = 2;

thread_local!(static LAST_ERROR: RefCell<CString> = RefCell::default());

/// Makes a call. Returns 0, 1 if memory ran out, or 2 for any other error, whose text
/// [`accelerator_torch_last_error`] returns then.
#[inline(always)]
pub(crate) fn status(call: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => DONE,
        Ok(Err(error)) => told(&error),
        Err(panic) => panicked(&*panic),
    }
}

/// Makes a call that cannot fail. If it panics, returns `otherwise`.
#[inline(always)]
pub(crate) fn or<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

#[cold]
fn told(error: &Error) -> c_int {
    keep(&error.to_string());
    if matches!(error, Error::OutOfMemory(_)) { OUT_OF_MEMORY } else { FAILED }
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> c_int {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of unknown kind");
    keep(&format!("the allocator panicked, please report this: {text}"));
    FAILED
}

fn keep(text: &str) {
    LAST_ERROR.set(text_for_c(text));
}

/// Returns a text as C has it, up to its first zero byte.
pub(crate) fn text_for_c(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// Returns the text of this thread's last error. It is valid until the thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}
