use std::sync::Arc;

use super::{
    Bytes, Device, DeviceKind, DriverError, HostOutOfMemory, MemPoolId, OutOfMemory, PoolFileError, SharingProblem,
    StreamId, Unavailable, printable,
};

/// The result of a fallible function of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. A failed call has changed nothing, unless its documentation says otherwise.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There was not enough device memory, even after the cache was released.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),

    /// There was not enough pinned host memory, even after the cache was released.
    #[error(transparent)]
    HostOutOfMemory(Box<HostOutOfMemory>),

    /// A driver call failed.
    #[error("{device}: {source}")]
    Driver {
        /// The device.
        device: Device,
        /// The failed call.
        #[source]
        source: DriverError,
    },

    /// No accelerator is available.
    #[error("no accelerator is available: {reasons}")]
    NoAccelerator {
        /// Why each compiled-in backend has no device.
        reasons: String,
    },

    /// No backend of this build has this name.
    #[error("{given_by}: unknown backend `{}`; this build has {known}", printable(name))]
    UnknownBackend {
        /// The name.
        name: String,
        /// Where the name was given: a function or an environment variable.
        given_by: &'static str,
        /// The compiled-in backends.
        known: String,
    },

    /// The device number is out of range.
    #[error("{kind} device {index} does not exist: {}", available(*.count))]
    InvalidDevice {
        /// The kind of device.
        kind: DeviceKind,
        /// The requested number.
        index: i64,
        /// The number of devices.
        count: u32,
    },

    /// The text does not name a device.
    #[error(
        "`{}` does not name a device: expected a kind such as `host`, or a kind and an index such as `host:1`",
        printable(text)
    )]
    InvalidDeviceName {
        /// The text.
        text: String,
    },

    /// A device was given without the index that this call requires.
    #[error("a device index is required, such as 1 or `{kind}:1`, but `{given}` was given")]
    DeviceIndexRequired {
        /// The current accelerator's kind.
        kind: DeviceKind,
        /// What was given: `None`, or a kind.
        given: String,
    },

    /// The device is not of the kind of the current accelerator.
    #[error("the current accelerator is {expected}, but the device given is {found}")]
    DeviceKindMismatch {
        /// The kind of the current accelerator.
        expected: DeviceKind,
        /// The device that was given.
        found: String,
    },

    /// A stream, event or buffer belongs to another device, or to another instance of the same device.
    #[error("{what} belongs to {}, but this call is for {expected}", owner(found, expected))]
    DeviceMismatch {
        /// The stream, event or buffer, in words.
        what: &'static str,
        /// The device of the call.
        expected: Device,
        /// The device that it belongs to.
        found: Device,
    },

    /// The device has no stream with this number.
    #[error("{device} has no stream {stream}: give the number of a stream that was made on this device")]
    UnknownStream {
        /// The device.
        device: Device,
        /// The number.
        stream: StreamId,
    },

    /// A pointer given to the raw interface is not allocated: it was freed already, or this allocator did not allocate
    /// it.
    #[error("{device}: no allocation at {address:#x}: it was freed already, or made by another allocator")]
    UnknownPointer {
        /// The device.
        device: Device,
        /// The trace address of the pointer.
        address: u64,
    },

    /// A memory pool cannot do what was asked of it.
    #[error("{device}: memory pool {} {problem}", pool.with_name(name.as_deref()))]
    MemPool {
        /// The device.
        device: Device,
        /// The pool.
        pool: MemPoolId,
        /// Its name, if it has one.
        name: Option<Arc<str>>,
        /// The reason, as the rest of a sentence.
        problem: &'static str,
    },

    /// The contents of a paused memory pool cannot be written to a file, or read from it.
    #[error(transparent)]
    PoolFile(Box<PoolFileError>),

    /// A graph cannot do what was asked of it.
    #[error("{device}: the graph {problem}")]
    Graph {
        /// The device.
        device: Device,
        /// The reason, as the rest of a sentence.
        problem: &'static str,
    },

    /// Memory cannot be shared with other processes, or memory of another process cannot be imported.
    #[error("{device}: {problem}")]
    Sharing {
        /// The device.
        device: Device,
        /// The reason.
        problem: SharingProblem,
    },

    /// A memory fraction is not between 0 and 1.
    #[error("the memory fraction must be between 0 and 1, but is {0}")]
    InvalidFraction(f64),

    /// Allocator settings were refused. The old settings stay in force.
    #[error("allocator settings `{}`{}: {}", printable(settings), place(*.variable), printable(reason))]
    InvalidSetting {
        /// The environment variable that the settings come from, if any.
        variable: Option<&'static str>,
        /// The whole text of the settings.
        settings: String,
        /// Which key is wrong, and what was expected.
        reason: String,
    },

    /// A range exceeds a buffer.
    #[error("{} at offset {offset} exceed the buffer's {}", Bytes(*len), Bytes(*size))]
    OutOfBounds {
        /// The start of the range, in bytes from the start of the buffer.
        offset: u64,
        /// The length of the range in bytes.
        len: u64,
        /// The size of the buffer in bytes.
        size: u64,
    },

    /// The length of a buffer is not a multiple of the element size.
    #[error("the {size} bytes of the buffer are not a multiple of the size of an element, {element} bytes")]
    ElementSize {
        /// The size of the buffer in bytes.
        size: u64,
        /// The size of an element in bytes.
        element: usize,
    },

    /// The elapsed time between two events is not available.
    #[error("elapsed time: {0}")]
    ElapsedTime(&'static str),
}

debug_as_display!(Error);

impl Error {
    /// [`Error::NoAccelerator`] for one kind of device.
    pub fn no_accelerator(kind: DeviceKind, why: &Unavailable) -> Self {
        Self::NoAccelerator { reasons: format!("{kind}: {why}") }
    }
}

/// Fails unless `len` bytes at the offset lie within a buffer of this size.
pub(crate) fn check_bounds(offset: u64, len: u64, size: u64) -> Result<()> {
    let is_within = offset.checked_add(len).is_some_and(|end| end <= size);
    if is_within { Ok(()) } else { Err(Error::OutOfBounds { offset, len, size }) }
}

fn place(variable: Option<&str>) -> String {
    variable.map_or_else(String::new, |variable| format!(" in the environment variable {variable}"))
}

fn owner(found: &Device, expected: &Device) -> String {
    if found == expected { format!("another instance of {found}") } else { found.to_string() }
}

fn available(count: u32) -> String {
    match count {
        0 => "there is none".to_owned(),
        1 => "the only one has number 0".to_owned(),
        _ => format!("there are {count}, numbered from 0"),
    }
}

#[cfg(test)]
mod tests;
