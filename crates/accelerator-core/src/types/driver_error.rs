use std::fmt;

use super::printable;

/// A driver call that failed.
///
/// It is `Copy` and owns no text, since running out of memory is a normal event inside the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub struct DriverError {
    /// What the failure means to the caller.
    pub kind: DriverErrorKind,
    /// The driver's function, such as `cuMemAlloc` or `mmap`.
    pub call: &'static str,
    /// The driver's error code, or [`REFUSED`](Self::REFUSED).
    pub code: i64,
    /// The driver's name of the code, such as `CUDA_ERROR_OUT_OF_MEMORY`, or why the call was refused.
    pub name: &'static str,
}

impl DriverError {
    /// The code of errors that come from the backend rather than its driver. No driver has it.
    pub const REFUSED: i64 = i64::MIN;

    /// An error that the driver's function `call` returned.
    pub const fn new(kind: DriverErrorKind, call: &'static str, code: i64, name: &'static str) -> Self {
        Self { kind, call, code, name }
    }

    /// An error of the backend rather than its driver, so without a driver's code: why `call` was not made, or why its
    /// result is not accepted. The code is [`REFUSED`](Self::REFUSED).
    pub const fn refused(kind: DriverErrorKind, call: &'static str, why: &'static str) -> Self {
        Self::new(kind, call, Self::REFUSED, why)
    }

    /// The error of a copy from or to a kind of [`Place`](crate::Place) that the backend does not know.
    pub const fn unknown_place(call: &'static str) -> Self {
        Self::refused(DriverErrorKind::Unsupported, call, "this backend does not know this kind of place")
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, name, .. } = self;
        match *code {
            Self::REFUSED => write!(f, "{call} was refused: {name}"),
            _ => write!(f, "{call} failed: {name} (code {code})"),
        }
    }
}

/// The result of a driver call.
pub type DriverResult<T> = std::result::Result<T, DriverError>;

/// What a failed driver call means to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverErrorKind {
    /// The device does not have enough memory left for this request. The allocator releases cached memory and tries
    /// again.
    OutOfMemory,
    /// The request exceeds the largest allocation that the driver supports, however much memory is free.
    AllocationTooLarge,
    /// The backend or its driver does not support this.
    Unsupported,
    /// The driver refused an argument.
    InvalidArgument,
    /// The device is gone or refuses every further call.
    DeviceLost,
    /// Anything else.
    Other,
}

/// Why a backend has no device on this machine, for people to read.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", printable(reason))] // it may contain text of a driver or of the environment
#[non_exhaustive]
pub struct Unavailable {
    /// The reason, such as `libcuda.so.1 was not found: install the NVIDIA driver`.
    pub reason: String,
}

impl Unavailable {
    /// No device, for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

debug_as_display!(DriverError, Unavailable);
