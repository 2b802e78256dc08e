//! A memory barrier on all threads of the process, which costs nothing on the threads that do not request it.
#![allow(unsafe_code)] // a system call

pub(super) use self::system::{is_possible, of_process};

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of membarrier(2), since Linux 4.14.
    const BARRIER: libc::c_int = 1 << 3;
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`: called once, before the first barrier.
    const REGISTER: libc::c_int = 1 << 4;

    /// Whether the system has refused a barrier after the first check, for example in a sandbox that the process has
    /// entered.
    static REFUSED: AtomicBool = AtomicBool::new(false);

    /// Whether the system supports such a barrier.
    pub(in crate::sync) fn is_possible() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER) && membarrier(BARRIER)) && !REFUSED.load(Ordering::Relaxed)
    }

    /// Returns when every thread of the process has passed a full memory barrier since this call. Must not be called if
    /// [`is_possible`] returns false.
    pub(in crate::sync) fn of_process() {
        if membarrier(BARRIER) || (membarrier(REGISTER) && membarrier(BARRIER)) {
            return;
        }
        REFUSED.store(true, Ordering::Relaxed);
        // By then every store has left its processor's store buffer, which takes microseconds. A thread that is not
        // running passed a barrier when it was descheduled.
        thread::sleep(Duration::from_millis(50));
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: The call takes three integers and does not access the program's memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(in crate::sync) fn is_possible() -> bool {
        false
    }

    pub(in crate::sync) fn of_process() {}
}
