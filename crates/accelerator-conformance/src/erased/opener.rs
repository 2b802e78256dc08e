//! How devices of a backend are found and opened.

use std::fmt;

use accelerator_core::{
    Accelerator, Backend, Device, DeviceKind, DeviceProperties, DriverResult, MemoryInfo, Result, Unavailable,
};

use super::AnyBackend;

/// Finds and opens the devices of one backend: what [`Backend`] has without a device.
#[derive(Clone, Copy)]
pub struct Opener {
    kind: DeviceKind,
    probe: fn() -> std::result::Result<u32, Unavailable>,
    open: fn(u32) -> DriverResult<AnyBackend>,
    count: fn() -> u32,
    accelerator: fn(u32) -> Result<Opened>,
}

/// What an [`Accelerator`] that was opened says of itself.
#[derive(Debug)]
pub struct Opened {
    /// Its kind and number.
    pub device: Device,
    /// What the device says about itself.
    pub properties: &'static DeviceProperties,
    /// Free and total memory.
    pub memory: Result<MemoryInfo>,
    /// Where it is, which is the same for the same one.
    pub(crate) address: usize,
}

impl Opener {
    /// For this backend.
    pub fn of<B: Backend>() -> Self {
        Self {
            kind: B::KIND,
            probe: B::probe,
            open: |ordinal| B::open(ordinal).map(AnyBackend::new),
            count: Accelerator::<B>::count,
            accelerator: opened::<B>,
        }
    }

    /// The kind of its devices.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn probe(&self) -> std::result::Result<u32, Unavailable> {
        (self.probe)()
    }

    /// Opens the device with this number.
    ///
    /// # Errors
    /// As [`Backend::open`].
    pub fn open(&self, ordinal: u32) -> DriverResult<AnyBackend> {
        (self.open)(ordinal)
    }

    /// How many devices there are, as [`Accelerator::count`] says.
    pub fn count(&self) -> u32 {
        (self.count)()
    }

    /// Opens the device with this number as a program does, by [`Accelerator::open`].
    ///
    /// # Errors
    /// As [`Accelerator::open`].
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
