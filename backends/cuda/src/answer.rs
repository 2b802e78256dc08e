//! Return codes of driver calls, as results.
#![allow(unsafe_code)] // the driver's texts

use std::ffi::{CStr, c_char, c_int};

use accelerator_core::{DriverError, DriverErrorKind as Kind, DriverResult};
use cudarc::driver::sys::CUresult as Code;

use crate::calls;

/// A number rather than the bindings' enum, since newer drivers return codes that the enum lacks.
pub(crate) type Answer = c_int;

/// Converts the return code of a call into a result.
pub(crate) fn of(call: &'static str, answer: Answer) -> DriverResult<()> {
    match answer {
        0 => Ok(()),
        code => Err(error(call, code)),
    }
}

/// Makes the error for a call that returned `code`.
pub(crate) fn error(call: &'static str, code: Answer) -> DriverError {
    DriverError::new(kind(code), call, code.into(), name(code))
}

pub(crate) fn is(error: &DriverError, code: Code) -> bool {
    error.code == code as i64
}

/// Classifies a return code. Uses numbers, since older bindings lack some of the names.
fn kind(code: Answer) -> Kind {
    match code {
        2 => Kind::OutOfMemory,
        // Value, device, context, handle, state, and what cannot be done during a capture. Streams that are destroyed
        // count as contexts that are (709), or as detached (917): `lost_with_context` asks about the context itself.
        1 | 101 | 201 | 400 | 401 | 709 | 900..=908 | 917 => Kind::InvalidArgument,
        801 => Kind::Unsupported,
        // The driver (4) or its server (810) is gone.
        4 | 810 => Kind::DeviceLost,
        // According to CUDA's documentation, after these errors the device cannot be used again until the process ends:
        // memory (214), links (220), contained errors (226), illegal addresses (700), time-outs (702), assertions
        // (710), stack, instructions, alignment, address spaces, program counters and launches (714 to 719), leaks
        // (721), external devices (911).
        214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 911 => Kind::DeviceLost,
        _ => Kind::Other,
    }
}

/// Returns the driver's name for the code.
fn name(code: Answer) -> &'static str {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: The call writes a pointer.
    if unsafe { calls::cuGetErrorName(code, &mut name) } != Ok(0) || name.is_null() {
        return "unknown error";
    }
    // SAFETY: The name is a string inside the driver, which stays loaded.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown error")
}
