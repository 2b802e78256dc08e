use std::fmt;

use super::{DriverError, Error, Result};

/// The kind of an accelerator: the name of its backend, as in the `"cuda"` of `"cuda:1"`.
///
/// The set is open: a third-party backend makes its own with [`DeviceKind::new`]. PyTorch: `torch.device.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceKind(&'static str);

impl DeviceKind {
    /// A kind with this name: lower case, without a colon.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One device: its kind and its number among the devices of that kind, from 0. Shown as `host:0`.
///
/// PyTorch: `torch.device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// The kind.
    pub kind: DeviceKind,
    /// The number among the devices of this kind.
    pub index: u32,
}

impl Device {
    /// What a call to its driver answered.
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

/// What a device says about itself when it is opened. Constant afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The device's name, as its driver gives it.
    pub name: String,
    /// The driver and its version, as text for a person.
    pub driver: String,
    /// Memory of the device, in bytes. Memory fractions are fractions of this.
    pub total_memory: u64,
    /// Bytes of the largest driver allocation; [`u64::MAX`]: whatever is free. OpenCL: `CL_DEVICE_MAX_MEM_ALLOC_SIZE`,
    /// Level Zero: `maxMemAllocSize`.
    pub largest_allocation: u64,
    /// Every driver allocation starts at a multiple of this many bytes.
    pub alignment: u64,
    /// The numerically greatest and least stream priority: `(0, -1)` offers two levels. A lower number runs
    /// first. CUDA: `cuCtxGetStreamPriorityRange`.
    pub stream_priorities: (i32, i32),
    /// What the device can compute with, for `get_device_capability`.
    pub capability: DeviceCapability,
    /// What names this very device on any machine, where the driver tells it. CUDA: `cuDeviceGetUuid`.
    pub uuid: Option<Uuid>,
    /// Where the device is on the bus, where the driver tells it. CUDA: `cuDeviceGetPCIBusId`.
    pub pci_address: Option<PciAddress>,
}

/// What names one device on any machine. Shown as `c0ffee00-1234-5678-9abc-def012345678`.
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

/// Where a device is on the PCI bus. Shown as `0000:3b:00.0`.
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

/// What a device can compute with. PyTorch: `torch.accelerator.get_device_capability`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCapability {
    /// Names of the element types that kernels on this device may use, as `float32`.
    pub supported_dtypes: Vec<&'static str>,
}

impl DeviceCapability {
    /// Booleans, integers and `float32`, which every device computes with, and more element types.
    pub fn with(more: impl IntoIterator<Item = &'static str>) -> Self {
        let mut supported_dtypes =
            vec!["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"];
        supported_dtypes.extend(more);
        Self { supported_dtypes }
    }
}

/// Free and total memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that are free.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
    /// Where `free` comes from.
    pub source: MemoryInfoSource,
}

/// Where the free memory in a [`MemoryInfo`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryInfoSource {
    /// The driver was asked: other processes are seen.
    Driver,
    /// The backend counts what it hands out itself: other processes are not seen.
    Accounting,
}
