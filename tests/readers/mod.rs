//! Threads that work, and threads that read meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope};

/// Runs each piece of work on a thread of its own, and beside them so many readers, which end once their flag is set:
/// when all work is over. Returns what the readers return.
///
/// # Panics
/// If a thread panics, once all have ended.
pub(crate) fn read_while<W: FnOnce() + Send, R: Send>(
    work: impl IntoIterator<Item = W>,
    readers: usize,
    read: impl Fn(&AtomicBool) -> R + Sync,
) -> Vec<R> {
    let over = AtomicBool::new(false);
    scope(|scope| {
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(|| read(&over))).collect();
        let working: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
        let failed = working.into_iter().map(ScopedJoinHandle::join).filter(Result::is_err).count();
        over.store(true, Ordering::Relaxed);
        let seen = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert_eq!(failed, 0, "threads failed");
        seen
    })
}
