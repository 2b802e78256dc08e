use super::printable;

/// A driver call that failed: which, and with what.
///
/// `Copy` and without text of its own, since running out of memory is a normal event inside the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{call} failed: {name} (code {code})")]
pub struct DriverError {
    /// What it means to the caller.
    pub kind: DriverErrorKind,
    /// The driver's function, as `cuMemAlloc` or `mmap`.
    pub call: &'static str,
    /// The driver's own code.
    pub code: i64,
    /// The driver's name for the code, as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: &'static str,
}

/// What a driver call answers.
pub type DriverResult<T> = std::result::Result<T, DriverError>;

/// What a failed driver call means to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverErrorKind {
    /// The device has no memory left for this request. The allocator frees cached memory and asks again.
    OutOfMemory,
    /// More memory than the driver gives in one allocation, however much is free.
    AllocationTooLarge,
    /// The backend or its driver does not offer this.
    Unsupported,
    /// An argument was refused.
    InvalidArgument,
    /// The device is gone, or refuses every further call.
    DeviceLost,
    /// Anything else.
    Other,
}

/// Why a backend offers no device on this machine, in words for a person.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", printable(reason))] // it may have the words of a driver or of the environment
pub struct Unavailable {
    /// The reason, as `libcuda.so.1 was not found: install the NVIDIA driver`.
    pub reason: String,
}

crate::debug_as_display!(DriverError, Unavailable);
