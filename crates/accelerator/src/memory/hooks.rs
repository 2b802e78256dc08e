use accelerator_core::{HookId, OutOfMemory, Result};

use crate::backends::AnyDevice;
use crate::device_arg::DeviceArg;

/// Names a callback or an observer of one device, to remove it.
#[derive(Clone, Copy)]
pub struct Hook {
    device: AnyDevice,
    id: HookId,
}

/// Adds an observer of requests to a device that fail for lack of memory. Opens the device. PyTorch:
/// `torch._C._cuda_attach_out_of_memory_observer`.
///
/// It runs once for each, on the thread that allocates, and may allocate and free; requests of its own that fail are
/// not observed.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn attach_out_of_memory_observer<'a>(
    device: impl Into<DeviceArg<'a>>,
    observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
) -> Result<Hook> {
    let device = device.into().resolve()?.open()?;
    Ok(Hook { device, id: device.add_out_of_memory_observer(Box::new(observer)) })
}

/// Adds a callback that is asked to free memory when a request to a device finds no cached block; it says whether it
/// freed any. Opens the device. PyTorch: `c10::FreeMemoryCallback` (C++).
///
/// It may allocate and free. It runs on the thread that allocates.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn add_free_memory_callback<'a>(
    device: impl Into<DeviceArg<'a>>,
    callback: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Hook> {
    let device = device.into().resolve()?.open()?;
    Ok(Hook { device, id: device.add_free_memory_callback(Box::new(callback)) })
}

/// Removes a callback or an observer. Whether it was still there.
pub fn remove_hook(hook: Hook) -> bool {
    hook.device.remove_hook(hook.id)
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hook {{ {}, {:?} }}", self.device.device(), self.id)
    }
}
