//! The system call membarrier(2).
#![allow(unsafe_code)] // a system call

use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};
use std::thread;
use std::time::Duration;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, since Linux 4.14.
pub(super) const BARRIER: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`: called once, before the first barrier.
pub(super) const REGISTER: libc::c_int = 1 << 4;

/// If this variable is 0, no barrier is ever requested: for sandboxes that end a process for an unexpected system call.
pub(super) const VARIABLE: &str = "ACCELERATOR_MEMBARRIER";

/// Asks the system once.
pub(in crate::sync) fn is_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let is_unwanted = env::var_os(VARIABLE).is_some_and(|value| value == "0");
        !is_unwanted && membarrier(REGISTER) && membarrier(BARRIER)
    })
}

/// Returns false if the system refuses.
pub(in crate::sync) fn of_process() -> bool {
    membarrier(BARRIER) || (membarrier(REGISTER) && membarrier(BARRIER))
}

/// Orders the compiler only. The processor is ordered by the barriers that other threads request.
#[inline(always)]
pub(in crate::sync) fn of_this_thread() {
    compiler_fence(Ordering::SeqCst);
}

/// Returns when every store has left its processor's store buffer, which takes microseconds. A thread that is not
/// running passed a barrier when it was descheduled.
pub(in crate::sync) fn wait_for_stores() {
    thread::sleep(Duration::from_millis(50));
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: The call takes three integers and does not access the program's memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
