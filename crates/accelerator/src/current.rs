//! The current device and stream of this thread.

use accelerator_core::{DeviceCapability, DeviceProperties, Error, Result};

use crate::device_arg::{DeviceArg, Target};
use crate::stream::Stream;
use crate::{choice, selection};

/// The number of the current device of this thread; 0 until another is set. PyTorch:
/// `torch.accelerator.current_device_index`.
///
/// # Errors
/// [`Error::NoAccelerator`] where there is no device, [`Error::UnknownBackend`].
pub fn current_device_index() -> Result<u32> {
    let backend = choice::current()?;
    choice::count(backend)?;
    Ok(selection::index(backend))
}

/// Makes a device the current one of this thread. A negative number does nothing. Opens nothing. PyTorch:
/// `torch.accelerator.set_device_index`.
///
/// # Errors
/// As [`DeviceArg`] says.
pub fn set_device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    match device.into() {
        DeviceArg::Index(..0) => Ok(()),
        device => exchange_device_index(device).map(drop),
    }
}

/// Makes a device the current one of this thread, and gives the number of the one that was. PyTorch:
/// `at::accelerator::exchangeDevice` (C++).
///
/// # Errors
/// As [`DeviceArg`] says, also for a negative number.
pub fn exchange_device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u32> {
    let Target { backend, index } = device.into().resolve()?;
    Ok(selection::exchange_index(backend, index))
}

/// The old name of [`current_device_index`]. PyTorch: `torch.accelerator.current_device_idx`.
///
/// # Errors
/// As [`current_device_index`].
#[deprecated = "use `current_device_index`"]
pub fn current_device_idx() -> Result<u32> {
    current_device_index()
}

/// The old name of [`set_device_index`]. PyTorch: `torch.accelerator.set_device_idx`.
///
/// # Errors
/// As [`set_device_index`].
#[deprecated = "use `set_device_index`"]
pub fn set_device_idx<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    set_device_index(device)
}

/// The current stream of a device on this thread: its default stream until [`set_stream`] sets another. Opens the
/// device. PyTorch: `torch.accelerator.current_stream`.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn current_stream<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Stream> {
    let target = device.into().resolve()?;
    match selection::stream(target.backend, target.index) {
        Some(stream) => Ok(stream),
        None => {
            let stream = Stream::current_of(target.backend, target.open()?);
            selection::set_stream(stream); // so that the next call finds it at once
            Ok(stream)
        }
    }
}

/// Makes a stream the current one of its device on this thread, and that device the current device. PyTorch:
/// `torch.accelerator.set_stream`.
///
/// # Errors
/// [`Error::DeviceKindMismatch`] for a stream of another backend than the current accelerator.
pub fn set_stream(stream: &Stream) -> Result<()> {
    let (device, current) = (stream.device(), choice::current()?);
    if stream.backend() != current {
        let (expected, found) = (current.kind().name(), device.to_string());
        return Err(Error::DeviceKindMismatch { expected, found });
    }
    selection::exchange_index(current, device.index);
    selection::set_stream(*stream);
    Ok(())
}

/// Waits until all work submitted to all streams of a device is done. Does nothing for a device that was never opened.
/// PyTorch: `torch.accelerator.synchronize`.
///
/// # Errors
/// As [`DeviceArg`] says; [`Error::Driver`], errors of the work itself among it.
pub fn synchronize<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    device.into().resolve()?.opened().map_or(Ok(()), |device| device.synchronize())
}

/// What a device can compute with. Opens the device. PyTorch: `torch.accelerator.get_device_capability`.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn get_device_capability<'a>(device: impl Into<DeviceArg<'a>>) -> Result<DeviceCapability> {
    get_device_properties(device).map(|properties| properties.capability.clone())
}

/// Name, driver, memory and limits of a device. Opens the device. PyTorch: `torch.cuda.get_device_properties`.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn get_device_properties<'a>(device: impl Into<DeviceArg<'a>>) -> Result<&'static DeviceProperties> {
    device.into().resolve()?.open().map(|device| device.properties())
}
