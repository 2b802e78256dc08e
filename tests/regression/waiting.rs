//! Waiting for other threads, with an end.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Returns what a function returns in another thread, which may wait for itself.
pub(crate) fn soon<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = channel();
    thread::spawn(move || done.send(run()));
    is_done.recv_timeout(Duration::from_secs(20)).unwrap() // otherwise it waits for itself
}

/// Waits until this is true, for ten seconds at most.
pub(crate) fn wait_until(is_true: impl Fn() -> bool) {
    let waits = (0..1000).take_while(|_| !is_true());
    assert!(waits.inspect(|_| thread::sleep(Duration::from_millis(10))).count() < 1000, "it takes too long");
}
