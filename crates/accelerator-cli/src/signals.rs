//! How the program ends by a signal.

#[cfg(unix)]
pub(crate) use unix::{end_by_closed_pipe, watch};

/// On other systems nothing is done before such an end.
#[cfg(not(unix))]
pub(crate) fn watch() {}

/// Nobody reads the output, so nobody is told.
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

    /// From now on, a signal that ends the program first removes its temporary files. A parent process still sees that
    /// the signal ended it. A signal that the program was started to ignore, as with `nohup`, stays ignored.
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
        // Without the thread, a signal ends the program as it ends any other.
        if thread::Builder::new().name("signals".to_owned()).spawn(watcher).is_ok() {
            let _ = is_ready.recv();
        }
    }

    /// Ends like a program that ignores write errors: without a message, and with a status that is not success, since
    /// not everything was printed and perhaps not everything was done.
    pub(crate) fn end_by_closed_pipe() -> ExitCode {
        let _ = emulate_default_handler(SIGPIPE);
        ExitCode::FAILURE
    }

    fn is_ignored(signal: libc::c_int) -> bool {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: Without a new action the call changes nothing but `action`, which has room for one.
        let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
        // SAFETY: The call has filled it, as its result says.
        answer == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
    }
}
