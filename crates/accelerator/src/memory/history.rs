use accelerator_core::{Device, History, Recording, Result};

use crate::choice;
use crate::device_arg::DeviceArg;

/// Starts to record what happens in a device's allocator, or with `None` stops and discards the recording. A recording
/// that is under way continues with the new limits. Opens the device. PyTorch:
/// `torch.cuda.memory._record_memory_history`.
///
/// The crate `accelerator-tracker` builds on it: it captures stacks and scopes, and writes files.
///
/// # Errors
/// Those of [`DeviceArg`] and of opening the device.
pub fn record_history<'a>(device: impl Into<DeviceArg<'a>>, recording: Option<Recording>) -> Result<()> {
    device.into().resolve()?.open()?.record_history(recording);
    Ok(())
}

/// The segments and blocks of each opened device of the current accelerator, and its recording. Those of one device are
/// consistent with each other. PyTorch: `torch.cuda.memory._snapshot`.
///
/// # Errors
/// [`Error::UnknownBackend`](crate::Error::UnknownBackend); [`Error::NoAccelerator`](crate::Error::NoAccelerator) in a
/// build without a backend.
pub fn histories() -> Result<Vec<(Device, History)>> {
    let devices = choice::current()?.all_opened();
    Ok(devices.map(|device| (device.device(), device.history())).collect())
}
