//! What Level Zero's functions answer, as results of a driver.

use accelerator_core::{DriverError, DriverErrorKind as Kind, DriverResult};
use level_zero_sys::ze_result_t as Code;

/// Makes a call of Level Zero through an opened loader. A function that the loader lacks is an error, too.
macro_rules! ask {
    ($api:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $api.$name() {
            Ok(function) => $crate::answer::of(stringify!($name), function($($argument),*)),
            Err(_) => Err($crate::answer::missing(stringify!($name))),
        }
    };
}
pub(crate) use ask;

/// As [`ask`], on a device that was opened: not if it is lost.
macro_rules! call {
    ($device:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $device.run(|| $crate::answer::ask!($device.api, $name($($argument),*)))
    };
}
pub(crate) use call;

/// What a function of Level Zero answered, as a result of the core, for [`XpuStream::submit`](crate::XpuStream::submit).
///
/// # Errors
/// All codes but `ZE_RESULT_SUCCESS`.
pub fn of(call: &'static str, code: Code) -> DriverResult<()> {
    match code {
        Code::ZE_RESULT_SUCCESS => Ok(()),
        code => {
            let name = code.name().unwrap_or("unknown error");
            Err(DriverError { kind: kind(code), call, code: code.0.into(), name })
        }
    }
}

/// The error of a function that the loader does not have.
pub(crate) fn missing(call: &'static str) -> DriverError {
    refused(call, Kind::Unsupported, "the Level Zero loader is too old for this call: update it")
}

/// An error that is not the driver's own: why a call is not made at all, or what is wrong with its success.
pub(crate) fn refused(call: &'static str, kind: Kind, why: &'static str) -> DriverError {
    DriverError { kind, call, code: -1, name: why }
}

pub(crate) fn is(error: &DriverError, code: Code) -> bool {
    error.code == i64::from(code.0)
}

/// "Not yet" is no error.
pub(crate) fn is_ready(answer: DriverResult<()>) -> DriverResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if is(&error, Code::ZE_RESULT_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

fn kind(code: Code) -> Kind {
    match code {
        Code::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY | Code::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY => {
            Kind::OutOfMemory
        }
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
