use accelerator_core::{MemPoolId, Result, Snapshot};

use crate::backends::AnyDevice;
use crate::choice;
use crate::device_arg::DeviceArg;

/// Returns the cached memory of all devices of the current accelerator to the driver: every segment without an
/// allocated block. Waits for the streams that still use freed memory. PyTorch: `torch.accelerator.empty_cache`.
///
/// # Errors
/// The first [`Error::Driver`](crate::Error::Driver), after all devices were tried.
/// [`Error::UnknownBackend`](crate::Error::UnknownBackend); [`Error::NoAccelerator`](crate::Error::NoAccelerator) in a
/// build without a backend.
pub fn empty_cache() -> Result<()> {
    let mut result = Ok(());
    for device in choice::current()?.all_opened().filter(AnyDevice::is_used) {
        result = result.and(device.empty_cache());
    }
    result
}

/// Returns the cached pinned host memory of all devices of the current accelerator to the system. Does not wait for
/// streams, so memory that they still use stays cached. PyTorch: `torch.accelerator.empty_host_cache`.
///
/// # Errors
/// The errors of [`empty_cache`].
pub fn empty_host_cache() -> Result<()> {
    let mut result = Ok(());
    for device in choice::current()?.all_opened() {
        result = result.and(device.empty_host_cache());
    }
    result
}

/// Returns the free memory of a private pool that is no longer in use to the driver, after a wait for the streams that
/// still use it. Does nothing for a pool that is in use: [`MemPool::trim`](crate::MemPool::trim) does that. PyTorch:
/// `c10::cuda::CUDACachingAllocator::emptyCache(mempool_id)` (C++).
///
/// # Errors
/// Errors of [`DeviceArg`]; [`Error::Driver`](crate::Error::Driver).
pub fn empty_pool_cache<'a>(pool: MemPoolId, device: impl Into<DeviceArg<'a>>) -> Result<()> {
    device.into().resolve()?.opened().map_or(Ok(()), |device| device.empty_pool_cache(pool))
}

/// Returns the segments and blocks of a private pool of a device, or nothing if the device has no such pool. PyTorch:
/// `torch.cuda.memory_snapshot(mempool_id)`.
///
/// # Errors
/// Errors of [`DeviceArg`].
pub fn pool_snapshot<'a>(pool: MemPoolId, device: impl Into<DeviceArg<'a>>) -> Result<Snapshot> {
    Ok(device.into().resolve()?.opened().map(|device| device.pool_snapshot(pool)).unwrap_or_default())
}

/// Returns all segments and blocks of all devices of the current accelerator. The data of each device is consistent.
/// PyTorch: `torch.cuda.memory_snapshot`.
///
/// # Errors
/// [`Error::UnknownBackend`](crate::Error::UnknownBackend); [`Error::NoAccelerator`](crate::Error::NoAccelerator) in a
/// build without a backend.
pub fn memory_snapshot() -> Result<Snapshot> {
    let devices = choice::current()?.all_opened();
    let mut all = Snapshot::default();
    for Snapshot { segments, aliases, pool_names } in devices.map(|device| device.snapshot()) {
        all.segments.extend(segments);
        all.aliases.extend(aliases);
        all.pool_names.extend(pool_names);
    }
    Ok(all)
}
