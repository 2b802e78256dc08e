//! The allocator settings of the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use accelerator_core::{AllocatorConfig, Result};

use crate::backends::{AnyDevice, BuiltIn};
use crate::choice;

/// What [`set_allocator_settings`] came to; `None`: the environment counts.
static SETTINGS: Mutex<Option<AllocatorConfig>> = Mutex::new(None);

/// Changes the settings of all allocators of the process: of the devices that are open, and of those that are opened
/// later through this crate. PyTorch: `torch._C._accelerator_setAllocatorSettings`.
///
/// The text is as in the environment variable `PYTORCH_ALLOC_CONF`: `max_split_size_mb:64,roundup_power2_divisions:4`.
/// [`AllocatorConfig`] has the keys, and what becomes of those that are left out. A memory fraction counts for devices
/// opened later; for open ones there is [`set_per_process_memory_fraction`](super::set_per_process_memory_fraction).
///
/// # Errors
/// [`Error::InvalidSetting`](crate::Error::InvalidSetting), also for text in the environment; nothing changes then.
pub fn set_allocator_settings(settings: &str) -> Result<()> {
    loop {
        let before = *lock_settings();
        // Under no lock: these may warn, and the program's subscriber may call this library.
        let config = before.map_or_else(AllocatorConfig::from_environment, Ok)?.updated(settings)?;
        let mut current = lock_settings();
        if *current == before {
            *current = Some(config);
            BuiltIn::all().flat_map(BuiltIn::all_opened).for_each(|device| device.set_config(config));
            return Ok(());
        }
    }
}

/// A device, opened with the settings of the process if need be.
pub(crate) fn open(backend: BuiltIn, index: u32) -> Result<AnyDevice> {
    if let Some(device) = backend.opened(index) {
        return Ok(device);
    }
    choice::count(backend)?; // else why there is none
    AllocatorConfig::from_environment()?; // warns here, if it does, since opening would warn under the lock
    // Held while opening, so that settings changed meanwhile do not pass the device by.
    let settings = lock_settings();
    let device = backend.open(index)?;
    if let Some(config) = *settings {
        device.set_config(config);
        device.set_memory_fraction(config.memory_fraction)?;
    }
    Ok(device)
}

fn lock_settings() -> MutexGuard<'static, Option<AllocatorConfig>> {
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}
