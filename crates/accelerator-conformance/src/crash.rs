//! Names the running cases when the process is about to die of a signal.

#[cfg(unix)]
pub(crate) use self::unix::install;

/// Signals are a notion of Unix.
#[cfg(not(unix))]
pub(crate) fn install() {}

#[cfg(unix)]
mod unix {
    #![allow(unsafe_code)] // signal handlers

    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::{Once, OnceLock};

    use crate::progress;

    /// Signals that a broken driver causes, with their names.
    const SIGNALS: [(libc::c_int, &str); 5] = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGABRT, "SIGABRT"),
    ];

    /// What happened on each of them before.
    static BEFORE: OnceLock<[Option<libc::sigaction>; SIGNALS.len()]> = OnceLock::new();

    /// Installs the handler, once.
    pub(crate) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let before = SIGNALS.map(|(signal, _)| replaced(signal, None));
            let _ = BEFORE.set(before);
            for (signal, _) in SIGNALS {
                let mut action = blank();
                action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
                // On its own stack, in case the thread's has overflowed.
                action.sa_flags = libc::SA_ONSTACK;
                replaced(signal, Some(&action));
            }
        });
    }

    fn blank() -> libc::sigaction {
        // SAFETY: All zeros are a valid `sigaction`: the default, with an empty mask.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// Sets the action of a signal, if one is given, and returns the one before.
    fn replaced(signal: libc::c_int, action: Option<&libc::sigaction>) -> Option<libc::sigaction> {
        let mut before = blank();
        // SAFETY: The action is valid, and the one before is written to a place of its own.
        let result = unsafe { libc::sigaction(signal, action.map_or(ptr::null(), ptr::from_ref), &mut before) };
        (result == 0).then_some(before)
    }

    extern "C" fn handler(signal: libc::c_int) {
        let place = SIGNALS.iter().position(|(listed, _)| *listed == signal);
        write(&["\n", place.map_or("a signal", |place| SIGNALS[place].1), " while these cases were running:\n"]);
        for slot in progress::in_use() {
            let [case, step, call] = slot.texts();
            write(&["  ", case.unwrap_or("a thread of a case")]);
            if let Some(step) = step {
                write(&[", checking that ", step]);
            }
            if let Some(call) = call {
                write(&[", in `", call, "`"]);
            }
            write(&["\n"]);
        }
        if let Some(broken) = progress::broken() {
            write(&["the backend breaks its contract: look at `", broken, "` first\n"]);
        }
        // What happened before happens now: the instruction that failed is repeated, and so is an abort.
        let before = BEFORE.get().zip(place).and_then(|(before, place)| before[place]);
        replaced(signal, Some(&before.unwrap_or_else(blank)));
        if signal == libc::SIGABRT {
            // SAFETY: It has no arguments that could be invalid.
            unsafe { libc::raise(signal) };
        }
    }

    /// Writes to standard error with nothing but a system call, as a signal handler must.
    fn write(parts: &[&str]) {
        for part in parts {
            // SAFETY: The bytes of a string are valid for reads.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    }
}
