use super::printable;

/// Why memory cannot be shared with other processes, or memory of another process cannot be imported.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SharingProblem {
    /// The backend, its driver, or this kind of memory does not allow it.
    #[error("memory cannot be shared with other processes: {0}")]
    Unsupported(&'static str),

    /// The bytes are not a handle.
    #[error("these bytes are not a handle of shared memory: pass on exactly the bytes of the handle")]
    NotAHandle,

    /// The memory was shared by this process itself.
    #[error("this process shared the memory itself: use the buffer that it has")]
    OwnProcess,

    /// The process that shared the memory has ended, or runs where this one cannot reach it.
    #[error(
        "the process that shared the memory has ended, or has another network namespace: share it again, or send the \
         handle over a socket"
    )]
    Gone,

    /// The memory is not shared any more.
    #[error("the memory is not shared any more: its process has freed it")]
    Withdrawn,

    /// The memory belongs to another device.
    #[error("the memory belongs to {}: import it there", printable(device))]
    OtherDevice {
        /// The device, in words.
        device: String,
    },

    /// The process that shared the memory gave no valid answer, or none in time.
    #[error("the process that shared the memory gave no valid answer: check that it runs, with the same version")]
    NoAnswer,

    /// A system call failed.
    #[error("{call} failed: {}", std::io::Error::from_raw_os_error(*code))]
    System {
        /// The call.
        call: &'static str,
        /// The number of the error.
        code: i32,
    },
}

debug_as_display!(SharingProblem);
