use std::fmt;

use accelerator_core::{Device, Result, Statistics};

use crate::backends::AnyDevice;
use crate::device_arg::DeviceArg;

/// The memory of one device, for programs that read its statistics often. The device is looked up only once.
#[derive(Clone, Copy)]
pub struct DeviceMemory(AnyDevice);

impl DeviceMemory {
    /// Returns the memory of this device. Opens the device.
    ///
    /// # Errors
    /// Errors of [`DeviceArg`] and of opening the device.
    pub fn open<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        device.into().resolve()?.open().map(Self)
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// Returns the size of the device's memory in bytes.
    pub fn total(&self) -> u64 {
        self.0.properties().total_memory
    }

    /// Returns all statistics of the allocator, which are 0 while the device is not in use.
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// Returns the cached memory of the device to the driver, as [`empty_cache`](super::empty_cache) does for all
    /// devices.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn empty_cache(&self) -> Result<()> {
        match self.0.is_used() {
            true => self.0.empty_cache(),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory {{ {} }}", self.device())
    }
}
