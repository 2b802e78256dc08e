use std::collections::BTreeMap;

use accelerator_core::{Device, MemPoolId, MemPoolInfo, PoolStat, Result, Statistics};

use crate::backends::AnyDevice;
use crate::device_arg::{DeviceArg, Target};

/// Returns all statistics of a device's allocator, sorted by name, or an empty map while the device is not in use.
/// PyTorch: `torch.accelerator.memory_stats`.
///
/// The names are those in PyTorch's code, such as `allocated_bytes.all.current`. In general they are `{allocation,
/// segment, active, inactive_split, allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes,
/// requested_bytes}.{all, small_pool, large_pool}.{current, peak, allocated, freed}`, then `oversize_{allocations,
/// segments}.{current, …}` and the counters `num_alloc_retries`, `num_ooms`, `num_sync_all_streams`,
/// `num_device_alloc`, `num_device_free`, `num_oom_rejections` and `max_split_size`. The values of `allocation.*` also
/// appear as `allocated.*`, which is the name in PyTorch's documentation. Each private pool that has had memory has
/// `reserved_bytes_by_private_pools.ID.{all, small_pool, large_pool}.…`, with an ID such as `0_1`, even when it is
/// gone. `paused_bytes`, which PyTorch does not have, are those of the reserved bytes that
/// [paused](crate::MemPool::pause) pools have given back.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn memory_stats<'a>(device: impl Into<DeviceArg<'a>>) -> Result<BTreeMap<String, i64>> {
    let Some(device) = used(device)? else { return Ok(BTreeMap::new()) };
    let mut values = device.statistics().to_map();
    for (pool, reserved) in device.reserved_by_private_pools() {
        values.extend(reserved.entries(&format!("reserved_bytes_by_private_pools.{pool}")));
    }
    Ok(values)
}

/// Returns the bytes that each private pool of a device holds and has held from the driver, also for pools that are
/// gone. PyTorch: `reserved_bytes_by_private_pools` of `torch.accelerator.memory_stats`, but without building names.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn reserved_by_private_pools<'a>(device: impl Into<DeviceArg<'a>>) -> Result<BTreeMap<MemPoolId, PoolStat>> {
    Ok(used(device)?.map(|device| device.reserved_by_private_pools()).unwrap_or_default())
}

/// Returns the private pools of a device, with their names and the memory that they have now. PyTorch has no
/// counterpart.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn mem_pools<'a>(device: impl Into<DeviceArg<'a>>) -> Result<BTreeMap<MemPoolId, MemPoolInfo>> {
    Ok(device.into().resolve()?.opened().map(|device| device.mem_pools()).unwrap_or_default())
}

/// Returns all statistics of a device's allocator as a struct, or `None` while the device is not in use. PyTorch:
/// `torch.accelerator.memory_stats`, but without building a map.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn statistics<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Option<Statistics>> {
    Ok(used(device)?.map(|device| device.statistics()))
}

/// Returns the bytes in live allocations. PyTorch: `torch.accelerator.memory_allocated`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn memory_allocated<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u64> {
    value(device, |statistics| statistics.allocated_bytes, |all| all.current)
}

/// Returns the peak of the bytes in live allocations, since the start or since [`reset_peak_memory_stats`]. PyTorch:
/// `torch.accelerator.max_memory_allocated`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn max_memory_allocated<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u64> {
    value(device, |statistics| statistics.allocated_bytes, |all| all.peak)
}

/// Returns the bytes reserved from the device, allocated or cached. PyTorch: `torch.accelerator.memory_reserved`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn memory_reserved<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u64> {
    value(device, |statistics| statistics.reserved_bytes, |all| all.current)
}

/// Returns the peak of the bytes reserved from the device, since the start or since [`reset_peak_memory_stats`].
/// PyTorch: `torch.accelerator.max_memory_reserved`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn max_memory_reserved<'a>(device: impl Into<DeviceArg<'a>>) -> Result<u64> {
    value(device, |statistics| statistics.reserved_bytes, |all| all.peak)
}

/// Resets the accumulated values (`allocated`, `freed`) and the event counters to 0. PyTorch:
/// `torch.accelerator.reset_accumulated_memory_stats`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn reset_accumulated_memory_stats<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    if let Some(device) = used(device)? {
        device.reset_accumulated_statistics();
    }
    Ok(())
}

/// Resets every peak to the current value. PyTorch: `torch.accelerator.reset_peak_memory_stats`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn reset_peak_memory_stats<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    if let Some(device) = used(device)? {
        device.reset_peak_statistics();
    }
    Ok(())
}

/// Returns the statistics as a human-readable table, in PyTorch's layout. PyTorch: `torch.cuda.memory_summary`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn memory_summary<'a>(device: impl Into<DeviceArg<'a>>) -> Result<String> {
    Ok(summary(device.into().resolve()?, false))
}

/// Like [`memory_summary`], without the lines of the two pools. PyTorch: `torch.cuda.memory_summary(abbreviated=True)`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn memory_summary_abbreviated<'a>(device: impl Into<DeviceArg<'a>>) -> Result<String> {
    Ok(summary(device.into().resolve()?, true))
}

fn summary(target: Target, abbreviated: bool) -> String {
    let device = Device { kind: target.backend.kind(), index: target.index };
    let used = used_target(target);
    let statistics = used.map(|device| device.statistics()).unwrap_or_default();
    let private = used.map(|device| device.reserved_by_private_pools()).unwrap_or_default();
    let pools = used.map(|device| device.mem_pools()).unwrap_or_default();
    super::memory_summary_of(device, &statistics, &private, &pools, abbreviated)
}

fn used<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Option<AnyDevice>> {
    device.into().resolve().map(used_target)
}

fn used_target(target: Target) -> Option<AnyDevice> {
    target.opened().filter(|device| device.is_used())
}

fn value<'a>(
    device: impl Into<DeviceArg<'a>>,
    quantity: impl FnOnce(Statistics) -> PoolStat,
    metric: impl FnOnce(accelerator_core::Stat) -> i64,
) -> Result<u64> {
    Ok(statistics(device)?.map_or(0, |statistics| metric(quantity(statistics).all).unsigned_abs()))
}
