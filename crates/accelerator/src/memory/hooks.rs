use accelerator_core::{HookId, OutOfMemory, Result};

use crate::backends::AnyDevice;
use crate::device_arg::DeviceArg;

/// A handle for a callback or an observer of one device, to pass to [`remove_hook`].
#[derive(Clone, Copy)]
pub struct Hook {
    device: AnyDevice,
    id: HookId,
}

/// Adds an observer, which is called for each request to a device that fails for lack of memory. Opens the device.
/// PyTorch: `torch._C._cuda_attach_out_of_memory_observer`.
///
/// The observer runs on the thread that allocates, and may itself allocate and free. It is not called for its own
/// failed requests.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn attach_out_of_memory_observer<'a>(
    device: impl Into<DeviceArg<'a>>,
    observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
) -> Result<Hook> {
    let device = device.into().resolve()?.open()?;
    Ok(Hook { device, id: device.add_out_of_memory_observer(Box::new(observer)) })
}

/// Adds a callback, which is called to free memory when a request to a device finds no cached block. The callback
/// returns whether it freed any memory. Opens the device. PyTorch: `c10::FreeMemoryCallback` (C++).
///
/// The callback runs on the thread that allocates, and may itself allocate and free.
///
/// # Errors
/// Errors of [`DeviceArg`] and of opening the device.
pub fn add_free_memory_callback<'a>(
    device: impl Into<DeviceArg<'a>>,
    callback: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Hook> {
    let device = device.into().resolve()?.open()?;
    Ok(Hook { device, id: device.add_free_memory_callback(Box::new(callback)) })
}

/// Removes a callback or an observer. Returns whether it had not been removed before.
pub fn remove_hook(hook: Hook) -> bool {
    hook.device.remove_hook(hook.id)
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hook {{ {}, {:?} }}", self.device.device(), self.id)
    }
}
