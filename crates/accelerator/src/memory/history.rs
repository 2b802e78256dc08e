use accelerator_core::{Device, History, Recording, Result};

use crate::choice;
use crate::device_arg::DeviceArg;

/// Starts to record the history of a device's allocator. `None` stops the recording and discards it. A recording in
/// progress continues with the new limits. Opens the device. PyTorch: `torch.cuda.memory._record_memory_history`.
///
/// The crate `accelerator-tracker` builds on this function. It captures stacks and scopes, and writes files.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn record_history<'a>(device: impl Into<DeviceArg<'a>>, recording: Option<Recording>) -> Result<()> {
    device.into().resolve()?.open()?.record_history(recording);
    Ok(())
}

/// Returns the segments and blocks of each open device of the current accelerator, and its recording. The data of each
/// device is consistent. PyTorch: `torch.cuda.memory._snapshot`.
///
/// # Errors
/// [`Error::UnknownBackend`](crate::Error::UnknownBackend); [`Error::NoAccelerator`](crate::Error::NoAccelerator) in a
/// build without a backend.
pub fn histories() -> Result<Vec<(Device, History)>> {
    let devices = choice::current()?.all_opened();
    Ok(devices.map(|device| (device.device(), device.history())).collect())
}
