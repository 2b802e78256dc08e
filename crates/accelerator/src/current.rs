//! The current device and stream of this thread.

use accelerator_core::{DeviceCapability, DeviceProperties, Error, Result};

use crate::backends::BuiltIn;
use crate::device_arg::{DeviceArg, Target};
use crate::stream::Stream;
use crate::{choice, selection};

/// The index of the current device of this thread; 0 until another is set. PyTorch:
/// `torch.accelerator.current_device_index`.
///
/// # Errors
/// [`Error::NoAccelerator`] where there is no device; [`Error::UnknownBackend`].
pub fn current_device_index() -> Result<u32> {
    let backend = choice::current()?;
    choice::count(backend)?;
    Ok(selection::index(backend))
}

/// Makes a device the current one of this thread. The device must be given with its index; a negative index does
/// nothing. Opens no device. PyTorch: `torch.accelerator.set_device_index`.
///
/// # Errors
/// [`Error::DeviceIndexRequired`] for a device without an index, such as `None` and `"host"`; those of [`DeviceArg`].
pub fn set_device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    match device.into() {
        DeviceArg::Index(..0) => Ok(()),
        device => exchange_device_index(device).map(drop),
    }
}

/// Makes a device the current one of this thread, and returns the index of the one that was. PyTorch:
/// `at::accelerator::exchangeDevice` (C++).
///
/// # Errors
/// Those of [`set_device_index`]; [`Error::InvalidDevice`] for a negative index, too.
pub fn exchange_device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u32> {
    let Target { backend, index } = device.into().resolve_index()?;
    Ok(selection::exchange_index(backend, index))
}

/// The old name of [`current_device_index`]. PyTorch: `torch.accelerator.current_device_idx`.
///
/// # Errors
/// Those of [`current_device_index`].
#[deprecated = "use `current_device_index`"]
pub fn current_device_idx() -> Result<u32> {
    current_device_index()
}

/// The old name of [`set_device_index`]. PyTorch: `torch.accelerator.set_device_idx`.
///
/// # Errors
/// Those of [`set_device_index`].
#[deprecated = "use `set_device_index`"]
pub fn set_device_idx<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    set_device_index(device)
}

/// The current stream of a device on this thread: the default stream of the device until [`set_stream`] sets another.
/// Opens the device. PyTorch: `torch.accelerator.current_stream`.
///
/// # Errors
/// Those of [`DeviceArg`] and of opening the device.
pub fn current_stream<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Stream> {
    let target = device.into().resolve()?;
    match selection::stream(target.backend, target.index) {
        Some(stream) => Ok(stream),
        None => {
            let stream = Stream::current_of(target.backend, target.open()?);
            selection::exchange_stream(target.backend, target.index, Some(stream)); // so that the next call finds it at once
            Ok(stream)
        }
    }
}

/// Makes a stream the current one of its device on this thread, and that device the current device. PyTorch:
/// `torch.accelerator.set_stream`.
///
/// # Errors
/// [`Error::DeviceKindMismatch`] for a stream of another backend than the current accelerator;
/// [`Error::UnknownBackend`].
pub fn set_stream(stream: &Stream) -> Result<()> {
    let (backend, index) = of_current_accelerator(stream)?;
    selection::exchange_index(backend, index);
    selection::exchange_stream(backend, index, Some(*stream));
    Ok(())
}

/// The device of the stream, which must be one of the current accelerator.
pub(crate) fn of_current_accelerator(stream: &Stream) -> Result<(BuiltIn, u32)> {
    let (device, current) = (stream.device(), choice::current()?);
    if stream.backend() != current {
        return Err(Error::DeviceKindMismatch { expected: current.kind(), found: device.to_string() });
    }
    Ok((current, device.index))
}

/// Waits until all work submitted to all streams of a device is done. Does nothing for a device that was never opened.
/// PyTorch: `torch.accelerator.synchronize`.
///
/// # Errors
/// Those of [`DeviceArg`]; [`Error::Driver`], also for work that failed.
pub fn synchronize<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    device.into().resolve()?.opened().map_or(Ok(()), |device| device.synchronize())
}

/// The element types that a device can compute with. Opens the device. PyTorch:
/// `torch.accelerator.get_device_capability`.
///
/// # Errors
/// Those of [`DeviceArg`] and of opening the device.
pub fn get_device_capability<'a>(device: impl Into<DeviceArg<'a>>) -> Result<DeviceCapability> {
    get_device_properties(device).map(|properties| properties.capability.clone())
}

/// The name, driver, memory and limits of a device. Opens the device. PyTorch: `torch.cuda.get_device_properties`.
///
/// # Errors
/// Those of [`DeviceArg`] and of opening the device.
pub fn get_device_properties<'a>(device: impl Into<DeviceArg<'a>>) -> Result<&'static DeviceProperties> {
    device.into().resolve()?.open().map(|device| device.properties())
}
