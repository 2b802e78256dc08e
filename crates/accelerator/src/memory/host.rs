use std::collections::BTreeMap;

use accelerator_core::{HostStatistics, Result};

use crate::backends::AnyDevice;
use crate::device_arg::DeviceArg;

/// Returns all statistics of the pinned host memory allocator, sorted by name, or an empty map before its first use.
/// Each device has its own allocator, whereas PyTorch has one for the process. PyTorch:
/// `torch.cuda.host_memory_stats`.
///
/// The names are `{allocations, allocated_bytes, active_requests, active_bytes}.{current, peak, allocated, freed}`,
/// `{host_alloc_time, host_free_time}.{total, max, min, count, avg}`, in microseconds, `num_host_alloc` and
/// `num_host_free`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn host_memory_stats<'a>(device: impl Into<DeviceArg<'a>>) -> Result<BTreeMap<String, i64>> {
    Ok(host_statistics(device)?.as_ref().map(HostStatistics::to_map).unwrap_or_default())
}

/// Returns all statistics of the pinned host memory allocator as a struct, or `None` before its first use. PyTorch:
/// `torch.cuda.host_memory_stats`, but without building a map.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn host_statistics<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Option<HostStatistics>> {
    Ok(used(device)?.map(|device| device.host_statistics()))
}

/// Resets every peak of pinned host memory to the current value. PyTorch: `torch.cuda.reset_peak_host_memory_stats`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn reset_peak_host_memory_stats<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    if let Some(device) = used(device)? {
        device.reset_peak_host_statistics();
    }
    Ok(())
}

/// Resets the accumulated values of pinned host memory to 0. PyTorch: `torch.cuda.reset_accumulated_host_memory_stats`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn reset_accumulated_host_memory_stats<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    if let Some(device) = used(device)? {
        device.reset_accumulated_host_statistics();
    }
    Ok(())
}

fn used<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Option<AnyDevice>> {
    Ok(device.into().resolve()?.opened().filter(|device| device.is_host_used()))
}
