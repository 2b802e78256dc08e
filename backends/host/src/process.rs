//! A device belongs to the process that opened it: a forked child has none of its threads.

use std::mem;
use std::sync::Mutex;

use accelerator_core::backend_kit::get_mut;
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

/// The process that opened a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Fails in any other process. Call it before taking any lock: a thread of the parent may have held the lock at the
    /// fork.
    pub(crate) fn check(self) -> DriverResult<()> {
        if self.0 == std::process::id() { Ok(()) } else { Err(FORKED) }
    }
}

/// Forgets values without dropping them or taking a lock: in a forked child, a thread that no longer exists may have
/// held it.
pub(crate) fn forget<T: Default>(things: &mut Mutex<T>) {
    mem::forget(mem::take(get_mut(things)));
}

const FORKED: DriverError = DriverError::refused(
    DriverErrorKind::DeviceLost,
    "the call",
    "this process was forked from the one that opened the device, and has neither its threads nor its memory: open the \
     device only after the fork, or start a new program",
);
