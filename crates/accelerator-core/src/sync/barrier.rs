//! A memory barrier on all threads of the process, which costs those that do not ask for it nothing.
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
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`: once, before the first of them.
    const REGISTER: libc::c_int = 1 << 4;

    /// Whether the system has refused since it was asked first: in a sandbox that the process has entered.
    static REFUSED: AtomicBool = AtomicBool::new(false);

    /// Whether the system has such a barrier.
    pub(in crate::sync) fn is_possible() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER) && membarrier(BARRIER))
            && !REFUSED.load(Ordering::Relaxed)
    }

    /// Returns when every thread of the process has passed a full memory barrier since this was called. Where
    /// [`is_possible`] says no it is not to be called.
    pub(in crate::sync) fn of_process() {
        if membarrier(BARRIER) || (membarrier(REGISTER) && membarrier(BARRIER)) {
            return;
        }
        REFUSED.store(true, Ordering::Relaxed);
        // In so long every store has left its processor's buffer, which takes microseconds, and a thread that does not run has
        // passed a barrier when it was switched off.
        thread::sleep(Duration::from_millis(50));
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: The call takes three integers, and touches no memory of the program.
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
