//! Guards that switch this thread's current device or stream, and restore it on drop.

use accelerator_core::Result;

use crate::current;
use crate::device_arg::{DeviceArg, Target};
use crate::restore::Restore;
use crate::stream::Stream;

/// Makes a device the current one of this thread until the guard is dropped. PyTorch: `torch.accelerator.device_index`.
///
/// Guards also restore during a panic, and in whatever order they are dropped: once all of them are, everything is
/// current again that was current before the first.
///
/// ```
/// use accelerator::{DeviceIndexGuard, current_device_index};
/// # fn main() -> accelerator::Result<()> {
/// # accelerator::set_accelerator("host")?;
/// {
///     let _guard = DeviceIndexGuard::new(0)?;
///     assert_eq!(current_device_index()?, 0);
/// } // what was the current device before is so again
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "if it is dropped at once, it restores at once"]
pub struct DeviceIndexGuard {
    _device: Option<Restore>,
}

impl DeviceIndexGuard {
    /// Switches to a device. `None` switches nothing and restores nothing.
    ///
    /// # Errors
    /// [`Error::DeviceIndexRequired`](crate::Error::DeviceIndexRequired) for a device without an index other than
    /// `None`; those of [`DeviceArg`].
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let device = device.into();
        if device == DeviceArg::Current {
            return Ok(Self { _device: None });
        }
        let Target { backend, index } = device.resolve_index()?;
        Ok(Self { _device: Some(Restore::device(backend, index)) })
    }
}

/// [`DeviceIndexGuard::new`] under the name that PyTorch has for it: `torch.accelerator.device_index`.
///
/// # Errors
/// Those of [`DeviceIndexGuard::new`].
pub fn device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<DeviceIndexGuard> {
    DeviceIndexGuard::new(device)
}

/// Makes a stream, and its device, current on this thread until the guard is dropped. PyTorch: `with stream:`.
///
/// It restores what was current on the stream's device, and the current device, as [`DeviceIndexGuard`] does.
#[derive(Debug)]
#[must_use = "if it is dropped at once, it restores at once"]
pub struct StreamGuard {
    _stream: Restore,
    _device: Restore,
}

impl StreamGuard {
    /// Switches to the stream.
    ///
    /// # Errors
    /// Those of [`set_stream`](crate::set_stream).
    pub fn new(stream: &Stream) -> Result<Self> {
        let (backend, index) = current::of_current_accelerator(stream)?;
        Ok(Self {
            _stream: Restore::stream(backend, index, *stream),
            _device: Restore::device(backend, index),
        })
    }
}
