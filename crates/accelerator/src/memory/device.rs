use std::fmt;

use accelerator_core::{Device, Result, Statistics};

use crate::backends::AnyDevice;
use crate::device_arg::DeviceArg;

/// The memory of one device: for whoever reads its statistics often, and of this device whatever the current one is.
#[derive(Clone, Copy)]
pub struct DeviceMemory(AnyDevice);

impl DeviceMemory {
    /// That of this device, which is opened.
    ///
    /// # Errors
    /// As [`DeviceArg`] says; what opening the device can fail with.
    pub fn open<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        device.into().resolve()?.open().map(Self)
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// Bytes of the device.
    pub fn total(&self) -> u64 {
        self.0.properties().total_memory
    }

    /// Everything that the allocator counts; zeros where it is not used.
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// Gives the cached memory of the device back to the driver, as [`empty_cache`](super::empty_cache) does for all.
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
