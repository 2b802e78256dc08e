#![allow(unsafe_code)] // a system call

use std::time::Duration;

/// Returns the CPU time of the calling thread, or `None` if the system does not report it.
pub(super) fn of_this_thread() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid `timespec` to write to, and the call keeps no pointer to it.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    (failed == 0).then(|| Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn work_counts_and_waiting_does_not() {
        let start = of_this_thread().unwrap();
        sleep(Duration::from_millis(50));
        assert!(of_this_thread().unwrap() - start < Duration::from_millis(40));
        while of_this_thread().unwrap() - start < Duration::from_millis(41) {}
    }
}
