use accelerator_core::{Device, History, Recording, Result};

use crate::choice;
use crate::device_arg::DeviceArg;

/// Records from now on what happens in a device's allocator, or with `None` no longer, and then forgets it. While it is
/// recorded already, what is kept stays, under the new limits. Opens the device. PyTorch:
/// `torch.cuda.memory._record_memory_history`.
///
/// The crate `accelerator-tracker` captures stacks and scopes with it, and writes files.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn record_history<'a>(device: impl Into<DeviceArg<'a>>, recording: Option<Recording>) -> Result<()> {
    device.into().resolve()?.open()?.record_history(recording);
    Ok(())
}

/// What the allocator of each opened device of the current accelerator holds, and what was recorded before; that of one device
/// is of one moment. PyTorch: `torch.cuda.memory._snapshot`.
///
/// # Errors
/// [`Error::NoAccelerator`](crate::Error::NoAccelerator), [`Error::UnknownBackend`](crate::Error::UnknownBackend).
pub fn histories() -> Result<Vec<(Device, History)>> {
    let devices = choice::current()?.all_opened();
    Ok(devices.map(|device| (device.device(), device.history())).collect())
}
