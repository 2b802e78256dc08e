//! How devices of a backend are found and opened.

use std::any::type_name;
use std::fmt;

use accelerator_core::{
    Accelerator, Backend, Device, DeviceKind, DeviceProperties, DriverResult, MemoryInfo, Result, Unavailable,
};

use super::AnyBackend;

/// Finds and opens the devices of one backend: what [`Backend`] has without a device.
#[derive(Clone, Copy)]
pub struct Opener {
    kind: DeviceKind,
    name: fn() -> &'static str,
    probe: fn() -> std::result::Result<u32, Unavailable>,
    open: fn(u32) -> DriverResult<AnyBackend>,
    pub(crate) count: fn() -> u32,
    pub(crate) accelerator: fn(u32) -> Result<Opened>,
}

/// What an [`Accelerator`] tells that [`Accelerator::open`] gave.
pub(crate) struct Opened {
    /// Where it is, which is the same for the same one.
    pub(crate) address: usize,
    pub(crate) device: Device,
    pub(crate) properties: &'static DeviceProperties,
    pub(crate) memory: MemoryInfo,
}

impl Opener {
    /// For this backend.
    pub fn of<B: Backend>() -> Self {
        Self {
            kind: B::KIND,
            name: type_name::<B>,
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
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener {{ of: {} }}", (self.name)())
    }
}

fn opened<B: Backend>(ordinal: u32) -> Result<Opened> {
    let accelerator = Accelerator::<B>::open(ordinal)?;
    Ok(Opened {
        address: std::ptr::from_ref(accelerator).addr(),
        device: accelerator.device(),
        properties: accelerator.properties(),
        memory: accelerator.memory_info()?,
    })
}
