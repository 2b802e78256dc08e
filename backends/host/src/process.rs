//! A device belongs to the process that opened it: a forked child has none of its threads.

use std::mem;
use std::sync::Mutex;

use accelerator_core::backend_kit::{Health, get_mut};

/// Makes the health of a device that is opened in this process. Check it before taking any lock: a thread of the parent
/// may have held the lock at the fork.
pub(crate) fn health() -> Health {
    Health::new("the call", FORKED)
}

/// Forgets values without dropping them or taking a lock: in a forked child, a thread that no longer exists may have
/// held it.
pub(crate) fn forget<T: Default>(things: &mut Mutex<T>) {
    mem::forget(mem::take(get_mut(things)));
}

const FORKED: &str = "this process was forked from the one that opened the device, and has neither its threads nor \
                      its memory: open the device only after the fork, or start a new program";
