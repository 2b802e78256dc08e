//! What the engine keeps for each thread of the program.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

// A thread that is exiting may call the driver after these are destroyed. Hence `try_with`, which then behaves as on a
// fresh thread.

/// Returns a number that identifies the calling thread.
pub fn number() -> u64 {
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Whether the calling thread runs a host function.
pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

pub(crate) fn enter_host_function() {
    let _ = IN_HOST_FUNCTION.try_with(|inside| inside.set(true));
}
