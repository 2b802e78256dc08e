//! The allocator settings of the process.

use std::sync::{Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use accelerator_core::{AllocatorConfig, Result};

use crate::backends::{AnyDevice, BuiltIn};
use crate::choice;

/// The settings after the last [`set_allocator_settings`]. Before the first call this is `None`, and the settings of
/// the environment apply.
static SETTINGS: Mutex<Option<AllocatorConfig>> = Mutex::new(None);

/// Changes the settings of all allocators of the process: those of open devices, and of devices that are opened later
/// through this crate. PyTorch: `torch._C._accelerator_setAllocatorSettings`.
///
/// The text has the syntax of the environment variable `PYTORCH_ALLOC_CONF`, such as
/// `max_split_size_mb:64,roundup_power2_divisions:4`. [`AllocatorConfig`] describes the keys, and the effect of omitted
/// keys. A memory fraction applies to devices that are opened later; for open devices, use
/// [`set_per_process_memory_fraction`](super::set_per_process_memory_fraction).
///
/// # Errors
/// [`Error::InvalidSetting`](crate::Error::InvalidSetting) for this text, or for the text of the environment variable.
/// Nothing has then changed.
pub fn set_allocator_settings(settings: &str) -> Result<()> {
    loop {
        let before = *lock_settings();
        // No lock may be held here: this may warn, and the program's subscriber may call this library.
        let config = before.map_or_else(AllocatorConfig::from_environment, Ok)?.updated(settings)?;
        let mut current = lock_settings();
        if *current == before {
            *current = Some(config);
            drop(current);
            apply(config);
            return Ok(());
        }
    }
}

/// Changes the settings of the open devices. No lock may be held here, too: the change goes into histories, and what is
/// dropped from these is the program's.
fn apply(mut config: AllocatorConfig) {
    loop {
        BuiltIn::all().flat_map(BuiltIn::all_opened).for_each(|device| device.set_config(config));
        // Another thread may have applied newer settings before.
        match *lock_settings() {
            Some(latest) if latest != config => config = latest,
            _ => return,
        }
    }
}

/// Returns the settings for devices that are opened from now on. Open devices have the same settings, unless the
/// program changed the settings of a single device. As text, they have PyTorch's syntax. PyTorch:
/// `torch._C._accelerator_getAllocatorSettings`.
///
/// ```
/// use accelerator::memory::{get_allocator_settings, set_allocator_settings};
/// # fn main() -> accelerator::Result<()> {
/// set_allocator_settings("max_split_size_mb:64")?;
/// let settings = get_allocator_settings()?;
/// assert_eq!(settings.max_split_size, 64 << 20);
/// assert!(settings.to_string().contains("max_split_size_mb:64"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidSetting`](crate::Error::InvalidSetting) for the text of the environment.
pub fn get_allocator_settings() -> Result<AllocatorConfig> {
    lock_settings().map_or_else(AllocatorConfig::from_environment, Ok)
}

/// Returns a device. If necessary, opens it with the settings of the process.
pub(crate) fn open(backend: BuiltIn, index: u32) -> Result<AnyDevice> {
    if let Some(device) = backend.opened(index) {
        return Ok(device);
    }
    choice::count(backend)?; // if there is no device, fails with the reason
    AllocatorConfig::from_environment()?; // any warning must appear here, since opening would warn under the lock
    // Locked while the device is opened, so that the device does not miss a concurrent change of settings.
    let settings = lock_settings();
    let device = backend.open(index)?;
    if let Some(config) = *settings {
        device.set_config(config);
        device.set_memory_fraction(config.memory_fraction)?;
    }
    Ok(device)
}

fn lock_settings() -> MutexGuard<'static, Option<AllocatorConfig>> {
    lock(&SETTINGS)
}
