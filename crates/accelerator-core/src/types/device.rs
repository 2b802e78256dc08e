use std::fmt;
use std::str::FromStr;

use super::{DriverError, Error, Result};

/// The kind of an accelerator: the name of its backend, such as the `cuda` of `cuda:1`.
///
/// The set is open: a third-party backend makes its own with [`DeviceKind::new`]. PyTorch: `torch.device.type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceKind {
    /// The name, padded with zeros.
    name: [u8; Self::MAX_LEN],
    len: u8,
}

impl DeviceKind {
    /// The maximum length of a name, in bytes.
    pub const MAX_LEN: usize = 15;

    /// Returns the kind with this name. Use this for constants, and `text.parse::<DeviceKind>()` for other text.
    ///
    /// # Panics
    /// Panics unless the name has 1 to 15 characters of `a-z`, `0-9`, `_` and `-`, and starts with a letter. In a
    /// constant, a wrong name does not compile.
    #[allow(clippy::panic, reason = "in a constant, it is a compile-time error")]
    pub const fn new(name: &str) -> Self {
        let Some(kind) = Self::checked(name) else {
            panic!("a device kind has 1 to 15 characters of a-z, 0-9, _ and -, and starts with a letter")
        };
        kind
    }

    const fn checked(name: &str) -> Option<Self> {
        let name = name.as_bytes();
        if name.is_empty() || name.len() > Self::MAX_LEN || !name[0].is_ascii_lowercase() {
            return None;
        }
        let mut kind = Self { name: [0; Self::MAX_LEN], len: name.len() as u8 };
        let mut place = 0;
        while place < name.len() {
            if !matches!(name[place], b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-') {
                return None;
            }
            kind.name[place] = name[place];
            place += 1;
        }
        Some(kind)
    }

    /// The name.
    pub fn name(&self) -> &str {
        str::from_utf8(&self.name[..self.len.into()]).unwrap_or_default() // it is ASCII
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceKind").field(&self.name()).finish()
    }
}

/// The inverse of `Display`. It fails with [`Error::InvalidDeviceName`].
impl FromStr for DeviceKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::checked(name).ok_or_else(|| Error::InvalidDeviceName { text: name.to_owned() })
    }
}

/// One device: its kind and its index among the devices of that kind, from 0. Shown as `host:0`, and parsed from it.
///
/// PyTorch: `torch.device` with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// The kind.
    pub kind: DeviceKind,
    /// The index among the devices of this kind.
    pub index: u32,
}

impl Device {
    /// Adds the device to the result of a driver call.
    #[inline]
    pub(crate) fn driver_result<T>(&self, result: Result<T, DriverError>) -> Result<T> {
        result.map_err(|source| Error::Driver { device: *self, source })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

/// The inverse of `Display`: a kind, a colon, and an index without leading zeros. It fails with
/// [`Error::InvalidDeviceName`].
impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let device = text.split_once(':').and_then(|(kind, index)| {
            let digits = index.bytes().all(|byte| byte.is_ascii_digit());
            let is_index = digits && (index == "0" || !index.starts_with('0'));
            Some(Self { kind: DeviceKind::checked(kind)?, index: index.parse().ok().filter(|_| is_index)? })
        });
        device.ok_or_else(|| Error::InvalidDeviceName { text: text.to_owned() })
    }
}

/// The properties that a device reports when it is opened. They are constant afterwards.
///
/// A backend starts with [`new`](Self::new) and sets what it knows:
///
/// ```
/// use accelerator_core::{DeviceProperties, GIB};
///
/// let mut properties = DeviceProperties::new("Example 9000", 16 * GIB);
/// properties.driver = "example driver 1.2".to_owned();
/// properties.alignment = 256;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The device's name, from its driver.
    pub name: String,
    /// The driver and its version, for people to read.
    pub driver: String,
    /// The memory of the device in bytes. Memory fractions are fractions of this.
    pub total_memory: u64,
    /// The size of the largest possible driver allocation in bytes; [`u64::MAX`] if only free memory limits it. OpenCL:
    /// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`, Level Zero: `maxMemAllocSize`.
    pub largest_allocation: u64,
    /// Every driver allocation starts at a multiple of this many bytes. Where memory is named by handles, this is about
    /// the address that kernels see, and trace addresses are multiples of it, too.
    pub alignment: u64,
    /// The numerically greatest and least stream priority: `(0, -1)` offers two levels. A lower number runs first.
    /// CUDA: `cuCtxGetStreamPriorityRange`.
    pub stream_priorities: (i32, i32),
    /// The element types that the device supports, for `get_device_capability`.
    pub capability: DeviceCapability,
    /// Identifies this device on any machine, if the driver provides it. CUDA: `cuDeviceGetUuid`.
    pub uuid: Option<Uuid>,
    /// The device's address on the bus, if the driver provides it. CUDA: `cuDeviceGetPCIBusId`.
    pub pci_address: Option<PciAddress>,
}

impl DeviceProperties {
    /// The properties of a device with this name and memory, and otherwise the least that any device offers: no
    /// promised alignment, one level of priority, no listed element types, and only free memory limits an allocation.
    pub fn new(name: impl Into<String>, total_memory: u64) -> Self {
        Self {
            name: name.into(),
            driver: String::new(),
            total_memory,
            largest_allocation: u64::MAX,
            alignment: 1,
            stream_priorities: (0, 0),
            capability: DeviceCapability::default(),
            uuid: None,
            pci_address: None,
        }
    }
}

/// Identifies a device on any machine. Shown as `c0ffee00-1234-5678-9abc-def012345678`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let dash = if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The address of a device on the PCI bus. Shown as `0000:3b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The device on the bus.
    pub device: u32,
    /// The function of the device.
    pub function: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// The element types that a device supports. PyTorch: `torch.accelerator.get_device_capability`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCapability {
    /// The names of the element types that kernels on this device may use, such as `float32`.
    pub supported_dtypes: Vec<&'static str>,
}

impl DeviceCapability {
    /// Booleans, integers and `float32`, which every device supports, and further element types.
    pub fn with(more: impl IntoIterator<Item = &'static str>) -> Self {
        let mut supported_dtypes =
            vec!["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"];
        supported_dtypes.extend(more);
        Self { supported_dtypes }
    }
}

/// Free and total memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Free bytes.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
    /// The source of `free`.
    pub source: MemoryInfoSource,
}

impl MemoryInfo {
    /// Free and total bytes, and the source of `free`.
    pub const fn new(free: u64, total: u64, source: MemoryInfoSource) -> Self {
        Self { free, total, source }
    }
}

/// The source of the free memory in a [`MemoryInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryInfoSource {
    /// The driver reports it, so memory of other processes is taken into account.
    Driver,
    /// The backend counts the memory that it hands out, so memory of other processes is not taken into account.
    Accounting,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_name_and_are_told_apart_by_it() {
        for name in ["a", "cuda", "my_npu-2", "fifteen_letters"] {
            let kind = DeviceKind::new(name);
            assert_eq!((kind.name(), kind.to_string().as_str()), (name, name));
            assert_eq!(name.parse::<DeviceKind>().unwrap(), kind);
        }
        assert_eq!(format!("{:?}", DeviceKind::new("cuda")), "DeviceKind(\"cuda\")");
        assert!(
            DeviceKind::new("cuda") < DeviceKind::new("cuda2") && DeviceKind::new("cuda2") < DeviceKind::new("xpu")
        );
    }

    #[test]
    fn devices_are_parsed_from_what_they_are_shown_as() {
        for (text, kind, index) in [("host:0", "host", 0), ("cuda:10", "cuda", 10), ("x:4294967295", "x", u32::MAX)] {
            let device: Device = text.parse().unwrap();
            assert_eq!(device, Device { kind: DeviceKind::new(kind), index });
            assert_eq!(device.to_string(), text);
        }
    }

    #[test]
    fn other_text_is_refused_and_repeated() {
        let no_kinds = ["", ":", "1", "-1", "+1", "Host", "hóst", "host 1", "_host", "-host", "sixteen_letters_"];
        let no_devices =
            ["host", "host:", ":1", "host:-1", "host:+1", "host:01", "host: 1", "host:1:2", "host:99999999999"];
        let kinds = no_kinds.iter().map(|text| (text, text.parse::<DeviceKind>().err()));
        let devices = no_kinds.iter().chain(&no_devices).map(|text| (text, text.parse::<Device>().err()));
        for (given, error) in kinds.chain(devices) {
            assert!(matches!(&error, Some(Error::InvalidDeviceName { text }) if text == given), "{given}: {error:?}");
        }
    }

    #[test]
    #[should_panic = "a device kind has 1 to 15 characters"]
    fn a_constant_with_a_bad_name_panics() {
        let _ = DeviceKind::new("Cuda");
    }
}
