//! What driver calls answer, as results of a driver.
#![allow(unsafe_code)] // the driver's own texts

use std::ffi::{CStr, c_char, c_int};

use accelerator_core::{DriverError, DriverErrorKind as Kind, DriverResult};
use cudarc::driver::sys::CUresult as Code;

use crate::calls;

/// A number, since a driver newer than the bindings has codes that their enum lacks.
pub(crate) type Answer = c_int;

/// What the call of this name answered.
pub(crate) fn of(call: &'static str, answer: Answer) -> DriverResult<()> {
    match answer {
        0 => Ok(()),
        code => Err(error(call, code)),
    }
}

/// The error of the call of this name that answered `code`.
pub(crate) fn error(call: &'static str, code: Answer) -> DriverError {
    DriverError { kind: kind(code), call, code: code.into(), name: name(code) }
}

pub(crate) fn is(error: &DriverError, code: Code) -> bool {
    error.code == code as i64
}

/// An error that is not the driver's own: why a call is not made at all.
pub(crate) fn refused(call: &'static str, kind: Kind, why: &'static str) -> DriverError {
    DriverError { kind, call, code: -1, name: why }
}

/// By number, since older bindings lack some of the names.
fn kind(code: Answer) -> Kind {
    match code {
        2 => Kind::OutOfMemory,
        1 | 101 | 201 | 400 => Kind::InvalidArgument, // value, device, context, handle
        801 => Kind::Unsupported,
        // Gone are the driver (4), the context (709), its server (810).
        4 | 709 | 810 => Kind::DeviceLost,
        // After these, as CUDA documents, the process must end for the device to be used again: errors of memory (214), links
        // (220) and what is contained (226), illegal addresses (700), time-outs (702), assertions (710), errors of the stack,
        // instructions, alignment, address spaces, program counters and launches (714 to 719), leaks (721), errors outside (911).
        214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 911 => Kind::DeviceLost,
        _ => Kind::Other,
    }
}

/// The driver's name for the code.
fn name(code: Answer) -> &'static str {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: The call writes a pointer.
    if unsafe { calls::cuGetErrorName(code, &mut name) } != Ok(0) || name.is_null() {
        return "unknown error";
    }
    // SAFETY: The name is a text inside the driver, which stays loaded.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown error")
}
