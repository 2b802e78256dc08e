//! The current device and streams of a thread.

use accelerator_core::{DeviceCapability, DeviceProperties, Error, Result};

use crate::backends::BuiltIn;
use crate::device_arg::{DeviceArg, Target};
use crate::stream::Stream;
use crate::{choice, selection};

/// Returns the index of the current device of this thread, which is initially 0. PyTorch:
/// `torch.accelerator.current_device_index`.
///
/// # Errors
/// [`Error::NoAccelerator`] if there is no device; [`Error::UnknownBackend`].
pub fn current_device_index() -> Result<u32> {
    let backend = choice::current()?;
    choice::count(backend)?;
    Ok(selection::index(backend))
}

/// Makes a device the current device of this thread. The argument must have an index; a negative index does nothing.
/// Does not open the device. PyTorch: `torch.accelerator.set_device_index`.
///
/// # Errors
/// [`Error::DeviceIndexRequired`] for a device without an index, such as `None` or `"host"`; errors of [`DeviceArg`].
pub fn set_device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    match device.into() {
        DeviceArg::Index(..0) => Ok(()),
        device => exchange_device_index(device).map(drop),
    }
}

/// Makes a device the current device of this thread, and returns the index of the previous one. PyTorch:
/// `at::accelerator::exchangeDevice` (C++).
///
/// # Errors
/// The errors of [`set_device_index`]; also [`Error::InvalidDevice`] for a negative index.
pub fn exchange_device_index<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u32> {
    let Target { backend, index } = device.into().resolve_index()?;
    Ok(selection::exchange_index(backend, index))
}

/// The old name of [`current_device_index`]. PyTorch: `torch.accelerator.current_device_idx`.
///
/// # Errors
/// The errors of [`current_device_index`].
#[deprecated = "use `current_device_index`"]
pub fn current_device_idx() -> Result<u32> {
    current_device_index()
}

/// The old name of [`set_device_index`]. PyTorch: `torch.accelerator.set_device_idx`.
///
/// # Errors
/// The errors of [`set_device_index`].
#[deprecated = "use `set_device_index`"]
pub fn set_device_idx<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    set_device_index(device)
}

/// Returns the current stream of a device on this thread, which is the default stream until [`set_stream`] sets
/// another. Opens the device. PyTorch: `torch.accelerator.current_stream`.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn current_stream<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Stream> {
    Stream::current(device.into())
}

/// Returns whether work on the current stream of the current device is captured in a graph instead of being executed.
/// Opens the device. PyTorch: `torch.cuda.is_current_stream_capturing`.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device; [`Error::Driver`].
pub fn is_current_stream_capturing() -> Result<bool> {
    current_stream(None)?.is_capturing()
}

/// Makes a stream the current stream of its device on this thread, and makes that device the current device. This is
/// also the core's current stream, [`Accelerator::current_stream`](accelerator_core::Accelerator::current_stream).
/// PyTorch: `torch.accelerator.set_stream`.
///
/// # Errors
/// [`Error::DeviceKindMismatch`] if the stream belongs to a backend other than the current accelerator;
/// [`Error::UnknownBackend`].
pub fn set_stream(stream: &Stream) -> Result<()> {
    let (backend, index) = of_current_accelerator(stream)?;
    selection::exchange_index(backend, index);
    stream.accelerator().exchange_stream(stream.id());
    Ok(())
}

/// The device of the stream, which must be one of the current accelerator.
pub(crate) fn of_current_accelerator(stream: &Stream) -> Result<(BuiltIn, u32)> {
    let (device, current) = (stream.device(), choice::current()?);
    if stream.accelerator().backend() != current {
        return Err(Error::DeviceKindMismatch { expected: current.kind(), found: device.to_string() });
    }
    Ok((current, device.index))
}

/// Waits until all work submitted to all streams of a device is done. Does nothing for a device that is not open.
/// PyTorch: `torch.accelerator.synchronize`.
///
/// # Errors
/// Errors of [`DeviceArg`]; [`Error::Driver`], also if the work failed.
pub fn synchronize<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    device.into().resolve()?.opened().map_or(Ok(()), |device| device.synchronize())
}

/// Returns the element types that a device supports. Opens the device. PyTorch:
/// `torch.accelerator.get_device_capability`.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn get_device_capability<'a>(device: impl Into<DeviceArg<'a>>) -> Result<DeviceCapability> {
    get_device_properties(device).map(|properties| properties.capability.clone())
}

/// Returns the name, driver, memory and limits of a device. Opens the device. PyTorch:
/// `torch.cuda.get_device_properties`.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn get_device_properties<'a>(device: impl Into<DeviceArg<'a>>) -> Result<&'static DeviceProperties> {
    device.into().resolve()?.open().map(|device| device.properties())
}
