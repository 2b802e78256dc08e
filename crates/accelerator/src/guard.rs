//! Guards that change the current device or stream of a thread, and restore it on drop.

use accelerator_core::Result;

use crate::current;
use crate::device_arg::{DeviceArg, Target};
use crate::restore::Restore;
use crate::stream::Stream;

/// Makes a device the current device of this thread until the guard is dropped. PyTorch:
/// `torch.accelerator.device_index`.
///
/// Guards also restore during a panic. They may be dropped in any order: after the last drop, the state before the
/// first guard is restored.
///
/// ```
/// use accelerator::{DeviceIndexGuard, current_device_index};
/// # fn main() -> accelerator::Result<()> {
/// # accelerator::set_accelerator("host")?;
/// {
///     let _guard = DeviceIndexGuard::new(0)?;
///     assert_eq!(current_device_index()?, 0);
/// } // the previous device is current again
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it restores the previous state immediately"]
pub struct DeviceIndexGuard {
    _device: Option<Restore>,
}

impl DeviceIndexGuard {
    /// Switches to a device. `None` changes nothing and restores nothing.
    ///
    /// # Errors
    /// [`Error::DeviceIndexRequired`](crate::Error::DeviceIndexRequired) for any other argument without an index;
    /// errors of [`DeviceArg`].
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let device = device.into();
        if device == DeviceArg::Current {
            return Ok(Self { _device: None });
        }
        let Target { backend, index } = device.resolve_index()?;
        Ok(Self { _device: Some(Restore::device(backend, index)) })
    }
}

/// Calls [`DeviceIndexGuard::new`], under PyTorch's name: `torch.accelerator.device_index`.
///
/// # Errors
/// The errors of [`DeviceIndexGuard::new`].
pub fn device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<DeviceIndexGuard> {
    DeviceIndexGuard::new(device)
}

/// Makes a stream and its device current on this thread until the guard is dropped. PyTorch: `with stream:`.
///
/// It restores the current stream of the stream's device, and the current device, as [`DeviceIndexGuard`] does.
#[derive(Debug)]
#[must_use = "dropping it restores the previous state immediately"]
pub struct StreamGuard {
    _stream: Restore,
    _device: Restore,
}

impl StreamGuard {
    /// Switches to the stream.
    ///
    /// # Errors
    /// The errors of [`set_stream`](crate::set_stream).
    pub fn new(stream: &Stream) -> Result<Self> {
        let (backend, index) = current::of_current_accelerator(stream)?;
        Ok(Self { _stream: Restore::stream(*stream), _device: Restore::device(backend, index) })
    }
}
