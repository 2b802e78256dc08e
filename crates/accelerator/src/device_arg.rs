//! Which device an argument names.

use accelerator_core::{Device, Error, Result};

use crate::backends::{AnyDevice, BuiltIn};
use crate::{choice, memory, selection};

/// A device of the current accelerator as an argument: nothing, a number, a text or a [`Device`]. PyTorch: the
/// parameter `device` of `torch.accelerator`'s functions.
///
/// ```
/// use accelerator::{Device, DeviceKind, memory};
/// # fn main() -> accelerator::Result<()> {
/// # accelerator::set_accelerator("host")?;
/// memory::memory_stats(None)?; // the current device of this thread
/// memory::memory_stats(0)?;
/// memory::memory_stats("host")?; // the current device, if the accelerator is the host
/// memory::memory_stats("host:0")?;
/// memory::memory_stats(Device { kind: DeviceKind::new("host"), index: 0 })?;
/// # Ok(())
/// # }
/// ```
///
/// Refused are text that names no device ([`Error::InvalidDeviceName`]), a device of another kind than the current
/// accelerator ([`Error::DeviceKindMismatch`]) and a number out of range ([`Error::InvalidDevice`]; where there is no
/// device at all [`Error::NoAccelerator`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceArg<'a> {
    /// The current device of this thread.
    #[default]
    Current,
    /// The device with this number.
    Index(i64),
    /// A number, a kind, or both: `1`, `host`, `host:1`.
    Name(&'a str),
    /// This device.
    Device(Device),
}

impl From<Option<Self>> for DeviceArg<'_> {
    fn from(device: Option<Self>) -> Self {
        device.unwrap_or_default()
    }
}

impl<'a> From<&'a str> for DeviceArg<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a String> for DeviceArg<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name)
    }
}

impl From<Device> for DeviceArg<'_> {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

macro_rules! from_integers {
    ($($integer:ty)+) => {$(
        impl From<$integer> for DeviceArg<'_> {
            fn from(index: $integer) -> Self {
                Self::Index(i64::try_from(index).unwrap_or(i64::MAX)) // out of range all the same
            }
        }
    )+};
}

from_integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

/// A device of the current accelerator, opened or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) backend: BuiltIn,
    pub(crate) index: u32,
}

impl Target {
    /// The device, opened if need be.
    pub(crate) fn open(self) -> Result<AnyDevice> {
        memory::open(self.backend, self.index)
    }

    /// The device if it was opened before.
    pub(crate) fn opened(self) -> Option<AnyDevice> {
        self.backend.opened(self.index)
    }
}

impl DeviceArg<'_> {
    /// The device that is meant.
    pub(crate) fn resolve(self) -> Result<Target> {
        let backend = choice::current()?;
        match self {
            Self::Current => Ok(Target { backend, index: selection::index(backend) }),
            Self::Index(index) => at(backend, index),
            Self::Device(device) if device.kind != backend.kind() => {
                Err(mismatch(backend, device.to_string()))
            }
            Self::Device(device) => at(backend, device.index.into()),
            Self::Name(name) => match parse(name)? {
                (Some(kind), _) if kind != backend.kind().name() => Err(mismatch(backend, name.to_owned())),
                (_, Some(index)) => at(backend, index.into()),
                (_, None) => Self::Current.resolve(),
            },
        }
    }
}

/// Kind and number, as far as given.
fn parse(text: &str) -> Result<(Option<&str>, Option<u32>)> {
    let parsed = match text.split_once(':') {
        Some((kind, index)) => is_kind(kind).then(|| number(index)).flatten().map(|i| (Some(kind), Some(i))),
        None if is_kind(text) => Some((Some(text), None)),
        None => number(text).map(|index| (None, Some(index))),
    };
    parsed.ok_or_else(|| Error::InvalidDeviceName { text: text.to_owned() })
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
}

/// Digits without leading zeros, as in PyTorch.
fn number(text: &str) -> Option<u32> {
    let digits = text.chars().all(|c| c.is_ascii_digit());
    (digits && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok()).flatten()
}

fn at(backend: BuiltIn, index: i64) -> Result<Target> {
    let number = u32::try_from(index).ok();
    // What is open is there: drivers are asked only about others, since that takes its time.
    let open = number.filter(|index| backend.opened(*index).is_some());
    if let Some(index) = open {
        return Ok(Target { backend, index });
    }
    let count = choice::count(backend)?;
    match number.filter(|index| *index < count) {
        Some(index) => Ok(Target { backend, index }),
        None => Err(Error::InvalidDevice { kind: backend.kind().name(), index, count }),
    }
}

fn mismatch(backend: BuiltIn, found: String) -> Error {
    Error::DeviceKindMismatch { expected: backend.kind().name(), found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_number_a_kind_or_both() {
        assert_eq!(parse("3").unwrap(), (None, Some(3)));
        assert_eq!(parse("host").unwrap(), (Some("host"), None));
        assert_eq!(parse("cuda:10").unwrap(), (Some("cuda"), Some(10)));
        for text in [
            "",
            ":",
            "host:",
            ":1",
            "host:-1",
            "-1",
            "+1",
            "host:01",
            "host: 1",
            "Host",
            "host:1:2",
            "99999999999",
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                matches!(&error, Error::InvalidDeviceName { text: told } if told == text),
                "{text}: {error}"
            );
        }
    }
}
