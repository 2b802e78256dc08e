//! Return codes of Level Zero functions, as results.

use accelerator_core::{DriverError, DriverErrorKind as Kind, DriverResult};
use level_zero_sys::ze_result_t as Code;

/// Calls a function of Level Zero through an opened loader. If the loader lacks the function, that is an error too.
macro_rules! ask {
    ($api:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $api.$name() {
            Ok(function) => $crate::answer::of(stringify!($name), function($($argument),*)),
            Err(_) => Err($crate::answer::missing(stringify!($name))),
        }
    };
}
pub(crate) use ask;

/// Like [`ask`], on a device that was opened. Does not call anything if the device is lost.
macro_rules! call {
    ($device:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $device.health.run(|| $crate::answer::ask!($device.api, $name($($argument),*)))
    };
}
pub(crate) use call;

/// Converts the return code of a Level Zero function into a result of the core, for
/// [`XpuStream::submit`](crate::XpuStream::submit).
///
/// # Errors
/// Every code except `ZE_RESULT_SUCCESS`.
pub fn of(call: &'static str, code: Code) -> DriverResult<()> {
    match code {
        Code::ZE_RESULT_SUCCESS => Ok(()),
        code => {
            let name = code.name().unwrap_or("unknown error");
            Err(DriverError::new(kind(code), call, code.0.into(), name))
        }
    }
}

/// Makes the error for a function that the loader lacks.
pub(crate) fn missing(call: &'static str) -> DriverError {
    DriverError::refused(Kind::Unsupported, call, "the Level Zero loader is too old for this call: update it")
}

pub(crate) fn is(error: &DriverError, code: Code) -> bool {
    error.code == i64::from(code.0)
}

/// Converts the result of a query. "Not ready" is not an error.
pub(crate) fn is_ready(answer: DriverResult<()>) -> DriverResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if is(&error, Code::ZE_RESULT_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

fn kind(code: Code) -> Kind {
    match code {
        Code::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY | Code::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY => Kind::OutOfMemory,
        Code::ZE_RESULT_ERROR_UNSUPPORTED_SIZE => Kind::AllocationTooLarge,
        Code::ZE_RESULT_ERROR_DEVICE_LOST
        | Code::ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET
        | Code::ZE_RESULT_ERROR_SURVIVABILITY_MODE_DETECTED => Kind::DeviceLost,
        Code::ZE_RESULT_ERROR_UNSUPPORTED_VERSION
        | Code::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
        | Code::ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION => Kind::Unsupported,
        Code::ZE_RESULT_ERROR_INVALID_ARGUMENT
        | Code::ZE_RESULT_ERROR_INVALID_NULL_HANDLE
        | Code::ZE_RESULT_ERROR_INVALID_NULL_POINTER
        | Code::ZE_RESULT_ERROR_INVALID_SIZE
        | Code::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT
        | Code::ZE_RESULT_ERROR_INVALID_ENUMERATION => Kind::InvalidArgument,
        _ => Kind::Other,
    }
}
