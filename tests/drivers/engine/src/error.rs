//! What can go wrong, before a face translates it into an error code of its API.

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device has no more memory, or the machine that simulates it has none.
    OutOfDeviceMemory,
    /// There is no more host memory for devices.
    OutOfHostMemory,
    /// A request for zero bytes.
    ZeroSize,
    /// A size or address that is not a multiple of [`Face::PAGE`](crate::Face::PAGE), or an alignment that is not a
    /// power of two.
    NotAligned,
    /// Nothing live starts at the address or has the handle.
    Unknown,
    /// A range in the wrong state. The request needs one that is reserved, free, or filled by whole mappings.
    WrongRange,
}

/// How work failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The work touched memory that is not live, or that its device may not touch.
    IllegalAddress,
    /// The work touched an address that is not aligned to the access size.
    Misaligned,
}

/// Work that failed, and a description of what happened.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind.
    pub wrong: Wrong,
    /// For the list of violations.
    pub text: String,
}
