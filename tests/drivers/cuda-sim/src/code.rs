//! Results of driver calls.

use std::ffi::CStr;

use sim_engine::Error;

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

/// The outcome of a driver call.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// One table for constants, names and descriptions.
macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[allow(dead_code, reason = "some are only injected")]
        impl Code {
            $(pub(crate) const $name: Code = Code($number);)*
        }

        /// Returns the name and the text of a code.
        fn entry(code: i32) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($number => Some((
                    text_of(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                    text_of(concat!($text, "\0")),
                )),)*
                _ => None,
            }
        }
    };
}

/// Converts a string whose only zero is at its end to a C string.
fn text_of(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    STUB_LIBRARY = 34, "the library that was loaded is a stub";
    DEVICE_UNAVAILABLE = 46, "device is busy or unavailable";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    ECC_UNCORRECTABLE = 214, "uncorrectable ECC error encountered";
    PEER_ACCESS_UNSUPPORTED = 217, "peer access is not supported between these two devices";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    NVLINK_UNCORRECTABLE = 220, "uncorrectable NVLink error detected";
    CONTAINED = 226, "a contained error terminated the program's work";
    FILE_NOT_FOUND = 301, "file not found";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the operation cannot be performed in the current state";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    ASSERT = 710, "device-side assert triggered";
    TOO_MANY_PEERS = 711, "peer resources are exhausted";
    HARDWARE_STACK_ERROR = 714, "hardware stack error";
    ILLEGAL_INSTRUCTION = 715, "an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    INVALID_ADDRESS_SPACE = 717, "operation not supported on this address space";
    INVALID_PC = 718, "invalid program counter";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "a cooperative launch has more blocks than fit the device";
    TENSOR_MEMORY_LEAK = 721, "a kernel ended with tensor memory that it had not freed";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    SYSTEM_NOT_READY = 802, "the system is not ready yet";
    SYSTEM_DRIVER_MISMATCH = 803, "the driver library and its kernel module do not match";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "the device does not support forward compatibility";
    MPS_CLIENT_TERMINATED = 810, "the client of the multi-process service was ended";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "the legacy stream would depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "a thread-local capture was ended from another thread";
    TIMEOUT = 909, "the wait took longer than it may";
    EXTERNAL_DEVICE = 911, "an operation failed on an external device";
    UNKNOWN = 999, "unknown error";
}

impl Code {
    /// Whether the context is lost permanently: every later call on it returns this code.
    pub(crate) fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
    }
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        match error {
            Error::OutOfDeviceMemory | Error::OutOfHostMemory => Self::OUT_OF_MEMORY,
            Error::ZeroSize | Error::NotAligned | Error::Unknown | Error::WrongRange => Self::INVALID_VALUE,
        }
    }
}

impl sim_engine::Code for Code {
    const UNKNOWN: Self = Self::UNKNOWN;
    const FORKED: Self = Self::NOT_INITIALIZED;

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn describe(outcome: Outcome) -> String {
        let code = outcome.err().map_or(0, |code| code.0);
        format!("{code} {}", name(code).unwrap_or_default().to_string_lossy())
    }
}

/// Returns the name of a code of the driver API.
pub(crate) fn name(code: i32) -> Option<&'static CStr> {
    entry(code).map(|(name, _)| name)
}

/// Returns the text of a code of the driver API.
pub(crate) fn text(code: i32) -> Option<&'static CStr> {
    entry(code).map(|(_, text)| text)
}
