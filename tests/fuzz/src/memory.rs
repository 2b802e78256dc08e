//! How much memory a reader takes.

use super::counting::{counts, reset_most};

/// Runs `work`, and returns its result and the peak of the bytes that it had allocated at once, in addition to those
/// from before.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    reset_most();
    let before = counts().in_use;
    let result = work();
    (result, (counts().most - before).max(0) as u64)
}
