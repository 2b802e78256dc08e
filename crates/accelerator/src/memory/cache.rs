use accelerator_core::{Result, Snapshot};

use crate::backends::AnyDevice;
use crate::choice;

/// Gives the cached memory of all devices of the current accelerator back to the driver: every segment of which no part
/// is allocated. Waits for the streams that still use freed memory. PyTorch: `torch.accelerator.empty_cache`.
///
/// # Errors
/// [`Error::Driver`](crate::Error::Driver): of several the first, after all devices were tried.
/// [`Error::UnknownBackend`](crate::Error::UnknownBackend).
pub fn empty_cache() -> Result<()> {
    let mut result = Ok(());
    for device in choice::current()?.all_opened().filter(AnyDevice::is_used) {
        result = result.and(device.empty_cache());
    }
    result
}

/// Gives the cached pinned host memory of all devices of the current accelerator back to the system. Waits for no stream:
/// memory that streams still use stays. PyTorch: `torch.accelerator.empty_host_cache`.
///
/// # Errors
/// As [`empty_cache`].
pub fn empty_host_cache() -> Result<()> {
    let mut result = Ok(());
    for device in choice::current()?.all_opened() {
        result = result.and(device.empty_host_cache());
    }
    result
}

/// All segments and blocks of all devices of the current accelerator; those of one device are of one moment. PyTorch:
/// `torch.cuda.memory_snapshot`.
///
/// # Errors
/// [`Error::NoAccelerator`](crate::Error::NoAccelerator), [`Error::UnknownBackend`](crate::Error::UnknownBackend).
pub fn memory_snapshot() -> Result<Snapshot> {
    let devices = choice::current()?.all_opened();
    let mut all = Snapshot::default();
    for Snapshot { segments, aliases } in devices.map(|device| device.snapshot()) {
        all.segments.extend(segments);
        all.aliases.extend(aliases);
    }
    Ok(all)
}
