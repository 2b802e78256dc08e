use accelerator_core::{MemoryInfo, Result};

use crate::device_arg::DeviceArg;

/// Returns the free and total memory of a device, as its driver reports it. Opens the device. PyTorch:
/// `torch.accelerator.get_memory_info`.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device; [`Error::Driver`](crate::Error::Driver).
pub fn get_memory_info<'a>(device: impl Into<DeviceArg<'a>>) -> Result<MemoryInfo> {
    device.into().resolve()?.open()?.memory_info()
}

/// Like [`get_memory_info`], but returns a pair of free and total bytes. PyTorch: `torch.cuda.mem_get_info`.
///
/// # Errors
/// The errors of [`get_memory_info`].
pub fn mem_get_info<'a>(device: impl Into<DeviceArg<'a>>) -> Result<(u64, u64)> {
    get_memory_info(device).map(|MemoryInfo { free, total, .. }| (free, total))
}

/// Limits the memory that the allocator reserves from a device to this fraction of it; 1 means no limit. Memory that is
/// already reserved stays. Opens the device. PyTorch: `torch.cuda.set_per_process_memory_fraction`.
///
/// # Errors
/// [`Error::InvalidFraction`](crate::Error::InvalidFraction) outside 0..=1; errors of [`DeviceArg`] and of opening the
/// device.
pub fn set_per_process_memory_fraction<'a>(fraction: f64, device: impl Into<DeviceArg<'a>>) -> Result<()> {
    device.into().resolve()?.open()?.set_memory_fraction(fraction)
}

/// Returns the current memory fraction. Opens the device. PyTorch: `torch.cuda.get_per_process_memory_fraction`.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn get_per_process_memory_fraction<'a>(device: impl Into<DeviceArg<'a>>) -> Result<f64> {
    Ok(device.into().resolve()?.open()?.memory_fraction())
}
