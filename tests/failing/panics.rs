//! Panics of this project's code, which no failure of a driver may cause.

use std::panic;
use std::sync::{Mutex, Once};

use accelerator_core::backend_kit::lock;

/// Where cases assert what they expect, and may panic.
const CASES: &str = "accelerator-conformance";

static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on, notes panics and prints none.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|panic| {
            let is_of_a_case = panic.location().is_some_and(|location| location.file().contains(CASES));
            if !is_of_a_case {
                lock(&FOUND).push(panic.to_string());
            }
        }));
    });
}

/// Returns the panics since the last call.
pub(crate) fn found() -> Vec<String> {
    std::mem::take(&mut *lock(&FOUND))
}
