//! Termination by signals.

#[cfg(unix)]
pub(crate) use unix::{end_by_closed_pipe, watch};

/// Does nothing on systems other than Unix.
#[cfg(not(unix))]
pub(crate) fn watch() {}

/// Ends without a message, since nobody reads the output.
#[cfg(not(unix))]
pub(crate) fn end_by_closed_pipe() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}

#[cfg(unix)]
#[allow(unsafe_code)] // asks what a signal does
mod unix {
    use std::mem::MaybeUninit;
    use std::process::ExitCode;
    use std::ptr;
    use std::sync::mpsc;
    use std::thread;

    use accelerator_tracker::remove_temporary_files;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    /// Removes temporary files before a signal ends the program. The parent process still sees that the signal ended
    /// it. A signal that was ignored when the program started, as with `nohup`, stays ignored.
    pub(crate) fn watch() {
        let signals: Vec<_> = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)).collect();
        let (ready, is_ready) = mpsc::channel();
        let watcher = move || {
            let Ok(mut signals) = Signals::new(signals) else { return };
            let _ = ready.send(());
            for signal in signals.forever() {
                remove_temporary_files();
                let _ = emulate_default_handler(signal);
            }
        };
        // Without the thread, signals end the program with their default action.
        if thread::Builder::new().name("signals".to_owned()).spawn(watcher).is_ok() {
            let _ = is_ready.recv();
        }
    }

    /// Ends as SIGPIPE ends a program by default: without a message, but not with success, since not everything was
    /// printed and perhaps not everything was done.
    pub(crate) fn end_by_closed_pipe() -> ExitCode {
        let _ = emulate_default_handler(SIGPIPE);
        ExitCode::FAILURE
    }

    fn is_ignored(signal: libc::c_int) -> bool {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: Without a new action the call only writes to `action`, which has room for one action.
        let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
        // SAFETY: The call succeeded, so it initialised `action`.
        answer == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
    }
}
