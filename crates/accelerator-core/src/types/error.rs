use super::{
    Bytes, Device, DeviceKind, DriverError, HostOutOfMemory, OutOfMemory, StreamId, Unavailable, printable,
};

/// A result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. Afterwards nothing has changed and nothing is lost, unless the function that failed says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There was not enough memory, and releasing the cache did not help.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),

    /// There was not enough pinned host memory, and releasing its cache did not help.
    #[error(transparent)]
    HostOutOfMemory(Box<HostOutOfMemory>),

    /// A driver call failed.
    #[error("{device}: {source}")]
    Driver {
        /// The device.
        device: Device,
        /// The call.
        #[source]
        source: DriverError,
    },

    /// No accelerator is there.
    #[error("no accelerator is available: {reasons}")]
    NoAccelerator {
        /// Why each backend that was compiled in offers none.
        reasons: String,
    },

    /// A name that no backend of this build has.
    #[error("{given_by}: `{}` is no backend of this build, which has {known}", printable(name))]
    UnknownBackend {
        /// The name.
        name: String,
        /// Where it was given: a function or an environment variable.
        given_by: &'static str,
        /// The backends that were compiled in.
        known: String,
    },

    /// The device number is out of range.
    #[error("{kind} device {index} does not exist: {}", available(*.count))]
    InvalidDevice {
        /// The kind of device.
        kind: DeviceKind,
        /// The number asked for.
        index: i64,
        /// How many there are.
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

    /// A device of one kind was given where another is in use.
    #[error("the current accelerator is {expected}, but the device given is {found}")]
    DeviceKindMismatch {
        /// The current accelerator's kind.
        expected: DeviceKind,
        /// What was given.
        found: String,
    },

    /// A stream, event or buffer of another device, or of another opening of the same one, was given.
    #[error("{what} belongs to {}, but this call is for {expected}", owner(found, expected))]
    DeviceMismatch {
        /// What was given.
        what: &'static str,
        /// Where the call runs.
        expected: Device,
        /// Where it belongs.
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

    /// A pointer given to the raw interface is not allocated: freed already, or never from here.
    #[error("{device}: {address:#x} is not allocated here: it was freed already, or came from elsewhere")]
    UnknownPointer {
        /// The device.
        device: Device,
        /// The pointer's trace address.
        address: u64,
    },

    /// A memory fraction outside 0..=1.
    #[error("the memory fraction must be between 0 and 1, but is {0}")]
    InvalidFraction(f64),

    /// An allocator setting was refused; the old settings stay.
    #[error("allocator settings `{}`: {}", printable(settings), printable(reason))]
    InvalidSetting {
        /// All that was given.
        settings: String,
        /// What is wrong with it, and what was expected.
        reason: String,
    },

    /// A range reaches past the end of a buffer.
    #[error("{len} at offset {offset} reach past the end of a buffer of {size}", len = Bytes(*.len), size = Bytes(*.size))]
    OutOfBounds {
        /// Bytes from the start of the buffer.
        offset: u64,
        /// Bytes wanted.
        len: u64,
        /// Bytes of the buffer.
        size: u64,
    },

    /// A buffer's length is no multiple of the element's size.
    #[error("a buffer of {size} bytes is no whole number of elements of {element} bytes")]
    ElementSize {
        /// Bytes of the buffer.
        size: u64,
        /// Bytes of one element.
        element: usize,
    },

    /// Elapsed time of events that cannot tell it.
    #[error("elapsed time: {0}")]
    ElapsedTime(&'static str),
}

impl Error {
    /// [`Error::NoAccelerator`] for one kind of device.
    pub fn no_accelerator(kind: DeviceKind, why: &Unavailable) -> Self {
        Self::NoAccelerator { reasons: format!("{kind}: {why}") }
    }
}

/// Fails unless so many bytes at the offset are within a buffer of this size.
pub(crate) fn check_bounds(offset: u64, len: u64, size: u64) -> Result<()> {
    let is_within = offset.checked_add(len).is_some_and(|end| end <= size);
    if is_within { Ok(()) } else { Err(Error::OutOfBounds { offset, len, size }) }
}

fn owner(found: &Device, expected: &Device) -> String {
    if found == expected { format!("another opening of {found}") } else { found.to_string() }
}

fn available(count: u32) -> String {
    match count {
        0 => "there is none".to_owned(),
        1 => "there is one, number 0".to_owned(),
        _ => format!("there are {count}, numbered from 0"),
    }
}
