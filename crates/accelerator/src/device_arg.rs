//! Device arguments.

use std::borrow::Cow;
use std::fmt;

use accelerator_core::{Device, DeviceKind, Error, Result};

use crate::backends::{AnyDevice, BuiltIn};
use crate::{choice, memory, selection};

/// An argument that names a device of the current accelerator: `None`, an index, text, a [`Device`] or a
/// [`DeviceKind`]. PyTorch: the parameter `device` of the functions of `torch.accelerator`.
///
/// ```
/// use accelerator::{Device, DeviceArg, current_accelerator, memory_stats};
/// # fn main() -> accelerator::Result<()> {
/// # accelerator::set_accelerator("host")?;
/// memory_stats(None)?; // the current device of this thread
/// memory_stats(0)?;
/// memory_stats("host:0")?;
/// memory_stats("host")?; // the current device, provided that the current accelerator is the host
///
/// let device: Device = "host:0".parse()?;
/// memory_stats(device)?;
/// let kind = current_accelerator().expect("the host is there");
/// memory_stats(kind)?; // like "host"
///
/// let index: Option<u32> = Some(0);
/// memory_stats(index)?;
/// let name: Option<String> = None;
/// memory_stats(DeviceArg::or_current(name))?; // an option of any other type that names a device
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A function with a device argument fails with
/// * [`Error::InvalidDeviceName`] for text that does not name a device,
/// * [`Error::DeviceKindMismatch`] for a device whose kind is not that of the current accelerator,
/// * [`Error::InvalidDevice`] for an index that is out of range,
/// * [`Error::NoAccelerator`] if there is no device at all, and
/// * [`Error::UnknownBackend`] if `ACCELERATOR_BACKEND` names a backend that this build does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceArg<'a> {
    /// The current device of this thread.
    #[default]
    Current,
    /// The device with this index.
    Index(i64),
    /// The current device of this thread, provided that the current accelerator is of this kind.
    Kind(DeviceKind),
    /// A kind such as `host`, or a kind and an index such as `host:1`.
    Name(Cow<'a, str>),
    /// This device.
    Device(Device),
}

impl DeviceArg<'_> {
    /// Returns the given device, or the current device for `None`. An `Option<u32>` converts directly.
    pub fn or_current(device: Option<impl Into<Self>>) -> Self {
        device.map_or(Self::Current, Into::into)
    }
}

// This is the only conversion from an option. With a second one, a plain `None` would be ambiguous.
impl From<Option<u32>> for DeviceArg<'_> {
    #[inline]
    fn from(index: Option<u32>) -> Self {
        Self::or_current(index)
    }
}

impl From<DeviceKind> for DeviceArg<'_> {
    fn from(kind: DeviceKind) -> Self {
        Self::Kind(kind)
    }
}

impl<'a> From<&'a str> for DeviceArg<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name.into())
    }
}

impl<'a> From<&'a String> for DeviceArg<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name.into())
    }
}

impl From<String> for DeviceArg<'_> {
    fn from(name: String) -> Self {
        Self::Name(name.into())
    }
}

impl From<Device> for DeviceArg<'_> {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

impl From<&Device> for DeviceArg<'_> {
    fn from(device: &Device) -> Self {
        Self::Device(*device)
    }
}

macro_rules! from_integers {
    ($($integer:ty)+) => {$(
        impl From<$integer> for DeviceArg<'_> {
            #[inline]
            fn from(index: $integer) -> Self {
                Self::Index(i64::try_from(index).unwrap_or(i64::MAX)) // also out of range
            }
        }
    )+};
}

from_integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

/// A device of the current accelerator, whether open or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) backend: BuiltIn,
    pub(crate) index: u32,
}

impl Target {
    /// Returns the device. Opens it if necessary.
    pub(crate) fn open(self) -> Result<AnyDevice> {
        memory::open(self.backend, self.index)
    }

    /// Returns the device if it is open.
    pub(crate) fn opened(self) -> Option<AnyDevice> {
        self.backend.opened(self.index)
    }
}

impl DeviceArg<'_> {
    /// Returns the named device, or the current one if there is no index. Opens it if necessary. After the first call
    /// on a thread, this takes no lock: it is on the path of every allocation.
    #[inline]
    pub(crate) fn open(self) -> Result<AnyDevice> {
        match selection::last_device() {
            Some(device) if matches!(self, Self::Current) && choice::is_chosen(device.backend()) => Ok(device),
            _ => self.open_other(),
        }
    }

    /// Returns a device that [`open`](Self::open) does not find at once.
    #[inline(never)]
    fn open_other(self) -> Result<AnyDevice> {
        let target = self.resolve()?;
        let Target { backend, index } = target;
        let device = match selection::device(backend, index) {
            Some(device) => device,
            None => target.open()?,
        };
        selection::remember(backend, index, device);
        Ok(device)
    }

    /// Returns the named device, or the current one if there is no index.
    pub(crate) fn resolve(self) -> Result<Target> {
        let backend = choice::current()?;
        // The usual argument needs no call.
        let given = if matches!(self, Self::Current) { None } else { self.index(backend)? };
        let index = given.unwrap_or_else(|| selection::index(backend));
        Ok(Target { backend, index })
    }

    /// Returns the named device. The argument must have an index.
    pub(crate) fn resolve_index(self) -> Result<Target> {
        let backend = choice::current()?;
        match self.index(backend)? {
            Some(index) => Ok(Target { backend, index }),
            None => Err(Error::DeviceIndexRequired { kind: backend.kind(), given: self.to_string() }),
        }
    }

    /// Returns the index, after a check that the device exists, or `None` if there is no index.
    fn index(&self, backend: BuiltIn) -> Result<Option<u32>> {
        match self {
            Self::Current => Ok(None),
            Self::Index(index) => existing(backend, *index).map(Some),
            Self::Kind(kind) => self.index_of(backend, *kind, None),
            Self::Device(Device { kind, index }) => self.index_of(backend, *kind, Some(*index)),
            Self::Name(name) if name.contains(':') => {
                let Device { kind, index } = name.parse()?;
                self.index_of(backend, kind, Some(index))
            }
            Self::Name(name) => self.index_of(backend, name.parse()?, None),
        }
    }

    /// The index of a device of this kind.
    fn index_of(&self, backend: BuiltIn, kind: DeviceKind, index: Option<u32>) -> Result<Option<u32>> {
        if kind != backend.kind() {
            return Err(Error::DeviceKindMismatch { expected: backend.kind(), found: self.to_string() });
        }
        index.map(|index| existing(backend, index.into())).transpose()
    }
}

/// Formats the argument as it was given, with `None` for the current device.
impl fmt::Display for DeviceArg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("None"),
            Self::Index(index) => index.fmt(f),
            Self::Kind(kind) => kind.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Device(device) => device.fmt(f),
        }
    }
}

fn existing(backend: BuiltIn, index: i64) -> Result<u32> {
    let number = u32::try_from(index).ok();
    if let Some(known) = number.filter(|index| *index < backend.known_count()) {
        return Ok(known);
    }
    let count = choice::count(backend)?;
    let existing = number.filter(|index| *index < count);
    existing.ok_or(Error::InvalidDevice { kind: backend.kind(), index, count })
}
