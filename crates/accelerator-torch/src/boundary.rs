//! What crosses the boundary to C: numbers instead of errors, and no panic.
#![allow(unsafe_code)] // exported functions

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use accelerator_core::{Error, OutOfMemory, OutOfMemoryCause, Result};

/// The call succeeded.
pub(crate) const DONE: c_int = 0;
/// There is not enough memory.
pub(crate) const OUT_OF_MEMORY: c_int = 1;
/// Any other error.
const FAILED: c_int = 2;

/// The number of this interface, with that of its kind of device in PyTorch. Whoever calls the library compares it
/// with the number that it was written for. It changes with each function and each layout.
const INTERFACE: u32 = if cfg!(feature = "host") { 7 << 8 } else { 7 << 8 | 1 };

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
    static LAST_SHORTAGE: Cell<Shortage> = Cell::default();
}

/// What PyTorch tells the observers of failed requests, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Shortage {
    /// The size of the segment that the driver was asked for.
    segment: u64,
    /// The memory of the device.
    total: u64,
    /// What the process may use: all memory of the device, or the fraction that is set.
    limit: u64,
    /// The free memory of the device.
    free: u64,
    allocated: u64,
    reserved: u64,
    /// Whether `throw_on_cudamalloc_oom` refused the request.
    is_rejected: bool,
}

impl Shortage {
    fn of(report: &OutOfMemory) -> Self {
        let OutOfMemory { segment, allocated, reserved, .. } = *report;
        let total = report.total.unwrap_or_default();
        let (limit, free) = (report.allowed.unwrap_or(total), report.free.unwrap_or_default());
        let is_rejected = report.cause == OutOfMemoryCause::Rejected;
        Self { segment, total, limit, free, allocated, reserved, is_rejected }
    }
}

/// Makes a call. Returns 0, 1 if memory ran out, or 2 for any other error. [`accelerator_torch_last_error`] returns its
/// text then.
#[inline(always)]
pub(crate) fn status(call: impl FnOnce() -> Result<()>) -> c_int {
    let told = AssertUnwindSafe(|| call().map_or_else(|error| told(&error), |()| DONE));
    catch_unwind(told).unwrap_or_else(|panic| panicked(&*panic))
}

/// Makes a call that cannot fail. If it panics, returns `otherwise`.
#[inline(always)]
pub(crate) fn or<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

#[cold]
fn told(error: &Error) -> c_int {
    let Error::OutOfMemory(report) = error else {
        keep(&error.to_string());
        return FAILED;
    };
    keep(&as_pytorch(report));
    LAST_SHORTAGE.set(Shortage::of(report));
    OUT_OF_MEMORY
}

/// How PyTorch's messages about memory that ran out begin. Programs look for this.
const OUT_OF_MEMORY_AS_PYTORCH: &str =
    if cfg!(feature = "host") { "DefaultCPUAllocator: can't allocate memory:" } else { "CUDA out of memory." };

fn as_pytorch(report: &OutOfMemory) -> String {
    let (text, device) = (report.to_string(), report.device);
    match text.strip_prefix(&format!("{device} out of memory: ")) {
        Some(rest) => format!("{OUT_OF_MEMORY_AS_PYTORCH} {device} {rest}"),
        None => format!("{OUT_OF_MEMORY_AS_PYTORCH} {text}"),
    }
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> c_int {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of unknown kind");
    keep(&format!("the allocator panicked, please report this: {text}"));
    FAILED
}

/// Keeps a text as C has it, up to its first zero byte.
fn keep(text: &str) {
    let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
    // A thread that ends may call after its text is gone.
    let _ = LAST_ERROR.try_with(|last| last.replace(text));
}

/// Returns the number of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_interface() -> u32 {
    INTERFACE
}

/// Returns the text of this thread's last error. It is valid until the thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_last_error() -> *const c_char {
    const LOST: &CStr = c"the text of this error is lost, since its thread ends";
    LAST_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(LOST.as_ptr())
}

/// Returns the numbers of this thread's last failed request.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_last_shortage() -> Shortage {
    LAST_SHORTAGE.get()
}
