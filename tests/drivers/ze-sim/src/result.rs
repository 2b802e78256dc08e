//! Errors that calls return.

use level_zero_sys::ze_result_t;
use sim_engine::{Code, Error};

/// A `ze_result_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) ze_result_t);

/// The outcome of a call.
pub(crate) type Outcome<T = ()> = Result<T, Refusal>;

/// Converts an outcome to the result for C.
pub(crate) fn result(outcome: Outcome) -> ze_result_t {
    outcome.err().map_or(ze_result_t::ZE_RESULT_SUCCESS, |refusal| refusal.0)
}

macro_rules! refusals {
    ($($name:ident = $value:ident;)*) => {
        impl Refusal {
            $(pub(crate) const $name: Refusal = Refusal(ze_result_t::$value);)*
        }
    };
}

refusals! {
    NOT_READY = ZE_RESULT_NOT_READY;
    DEVICE_LOST = ZE_RESULT_ERROR_DEVICE_LOST;
    OUT_OF_HOST_MEMORY = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    OUT_OF_DEVICE_MEMORY = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    MODULE_BUILD_FAILURE = ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    UNINITIALIZED = ZE_RESULT_ERROR_UNINITIALIZED;
    UNSUPPORTED_VERSION = ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    UNSUPPORTED_FEATURE = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    UNSUPPORTED_ENUMERATION = ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    INVALID_ARGUMENT = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    INVALID_NULL_HANDLE = ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    INVALID_NULL_POINTER = ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    INVALID_SIZE = ZE_RESULT_ERROR_INVALID_SIZE;
    UNSUPPORTED_SIZE = ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    UNSUPPORTED_ALIGNMENT = ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    INVALID_SYNCHRONIZATION_OBJECT = ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT;
    INVALID_ENUMERATION = ZE_RESULT_ERROR_INVALID_ENUMERATION;
    INVALID_NATIVE_BINARY = ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
    INVALID_KERNEL_NAME = ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    INVALID_GROUP_SIZE_DIMENSION = ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    INVALID_KERNEL_ARGUMENT_INDEX = ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    INVALID_KERNEL_ARGUMENT_SIZE = ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    INVALID_COMMAND_LIST_TYPE = ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
    ADDRESS_NOT_FOUND = ZE_RESULT_ERROR_ADDRESS_NOT_FOUND;
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::OutOfDeviceMemory => Self::OUT_OF_DEVICE_MEMORY,
            Error::OutOfHostMemory => Self::OUT_OF_HOST_MEMORY,
            Error::ZeroSize => Self::UNSUPPORTED_SIZE,
            Error::NotAligned => Self::UNSUPPORTED_ALIGNMENT,
            Error::Unknown | Error::WrongRange => Self::INVALID_ARGUMENT,
        }
    }
}

impl Code for Refusal {
    const UNKNOWN: Self = Self(ze_result_t::ZE_RESULT_ERROR_UNKNOWN);
    const FORKED: Self = Self::UNINITIALIZED;

    /// Parses decimal, or hexadecimal with `0x` as in the headers.
    fn parse(text: &str) -> Option<Self> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => text.parse().ok()?,
        };
        Some(Self(ze_result_t(number)))
    }

    fn describe(outcome: Outcome) -> String {
        let code = result(outcome);
        format!("{:#x} {}", code.0, code.name().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_the_headers_write_them() {
        let read = ["0x70000001", "1879048193", "1", "0x", "lost"].map(Refusal::parse);
        let lost = Some(Refusal::DEVICE_LOST);
        assert_eq!(read, [lost, lost, Some(Refusal::NOT_READY), None, None]);
        assert_eq!(Refusal::describe(Err(Refusal::DEVICE_LOST)), "0x70000001 ZE_RESULT_ERROR_DEVICE_LOST");
    }
}
