//! What the engine keeps for each thread of the program.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

// A thread that ends may call the driver when these are already gone: `try_with`, and then as on a fresh
// thread.

/// A number of the calling thread.
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
