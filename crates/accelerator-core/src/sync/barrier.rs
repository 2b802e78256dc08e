//! A memory barrier on all threads of the process, which costs nothing on the threads that do not request it.

#[cfg(all(target_os = "linux", not(miri), not(all(test, loom))))]
mod linux;
#[cfg(test)]
#[cfg(loom)]
pub(super) mod modelled;
#[cfg(not(any(all(target_os = "linux", not(miri)), all(test, loom))))]
mod none;

#[cfg(all(target_os = "linux", not(miri), not(all(test, loom))))]
use self::linux as system;
#[cfg(all(test, loom))]
use self::modelled as system;
#[cfg(not(any(all(target_os = "linux", not(miri)), all(test, loom))))]
use self::none as system;
pub(super) use self::system::of_this_thread;
use super::primitives::atomic::{AtomicBool, Ordering};
use super::primitives::shared_static;

shared_static! {
    static REFUSED: AtomicBool = AtomicBool::new(false);
}

/// Whether the system supports such a barrier.
pub(super) fn is_possible() -> bool {
    // The system may have refused a barrier after the first check, for example in a sandbox that the process has
    // entered.
    system::is_supported() && !REFUSED.load(Ordering::Relaxed)
}

/// Returns when every thread of the process has passed a full memory barrier since this call, or the barrier
/// [`of_this_thread`]. Must not be called unless [`is_possible`] has returned true.
pub(super) fn of_process() {
    if !system::of_process() {
        REFUSED.store(true, Ordering::Relaxed);
        system::wait_for_stores();
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod tests;
