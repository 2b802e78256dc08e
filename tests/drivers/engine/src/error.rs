//! What can go wrong, before a face gives it the code that its API has for it.

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device has no more memory, or the machine that simulates it has none.
    OutOfDeviceMemory,
    /// There is no more host memory for devices.
    OutOfHostMemory,
    /// No memory of no bytes.
    ZeroSize,
    /// A size or an address that is no multiple of [`Face::PAGE`](crate::Face::PAGE), or an alignment that is
    /// no power of two.
    NotAligned,
    /// Nothing live starts at the address, or has the handle.
    Unknown,
    /// A range that is not what it has to be: reserved, free, or filled by whole mappings.
    WrongRange,
}

/// How work went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It touched what is not live, or what its device may not touch.
    IllegalAddress,
    /// It touched an address that is no multiple of what it touched.
    Misaligned,
}

/// Work that went wrong, and what happened in words.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind.
    pub wrong: Wrong,
    /// For the list of violations.
    pub text: String,
}
