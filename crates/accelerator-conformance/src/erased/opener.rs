//! Finding and opening devices of a backend.

use std::fmt;

use accelerator_core::{
    Accelerator, Backend, Device, DeviceKind, DeviceProperties, DriverResult, MemoryInfo, Result, Unavailable,
};

use super::AnyBackend;

/// Finds and opens the devices of one backend. It has the functions of [`Backend`] that need no device.
#[derive(Clone, Copy)]
pub struct Opener {
    kind: DeviceKind,
    probe: fn() -> std::result::Result<u32, Unavailable>,
    open: fn(u32) -> DriverResult<AnyBackend>,
    count: fn() -> u32,
    accelerator: fn(u32) -> Result<Opened>,
}

/// Information about an opened [`Accelerator`].
#[derive(Debug)]
pub struct Opened {
    /// The device's kind and index.
    pub device: Device,
    /// The device's properties.
    pub properties: &'static DeviceProperties,
    /// Free and total memory.
    pub memory: Result<MemoryInfo>,
    /// The address of the `Accelerator`, equal for the same instance.
    pub(crate) address: usize,
}

impl Opener {
    /// Returns the opener of this backend.
    pub fn of<B: Backend>() -> Self {
        Self {
            kind: B::KIND,
            probe: B::probe,
            open: |ordinal| B::open(ordinal).map(AnyBackend::new),
            count: Accelerator::<B>::count,
            accelerator: opened::<B>,
        }
    }

    /// Returns the kind of its devices.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// The errors of [`Backend::probe`].
    pub fn probe(&self) -> std::result::Result<u32, Unavailable> {
        (self.probe)()
    }

    /// Opens the device with this number.
    ///
    /// # Errors
    /// The errors of [`Backend::open`].
    pub fn open(&self, ordinal: u32) -> DriverResult<AnyBackend> {
        (self.open)(ordinal)
    }

    /// Returns the number of devices as given by [`Accelerator::count`].
    pub fn count(&self) -> u32 {
        (self.count)()
    }

    /// Opens the device with this number as a program does, with [`Accelerator::open`].
    ///
    /// # Errors
    /// The errors of [`Accelerator::open`].
    pub fn accelerator(&self, ordinal: u32) -> Result<Opened> {
        (self.accelerator)(ordinal)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener {{ kind: {} }}", self.kind)
    }
}

fn opened<B: Backend>(ordinal: u32) -> Result<Opened> {
    let accelerator = Accelerator::<B>::open(ordinal)?;
    Ok(Opened {
        device: accelerator.device(),
        properties: accelerator.properties(),
        memory: accelerator.memory_info(),
        address: std::ptr::from_ref(accelerator).addr(),
    })
}
