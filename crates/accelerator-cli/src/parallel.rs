//! Work on as many threads as there are hardware threads.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;

use accelerator_core::backend_kit::lock;

use crate::failure::Failure;

/// Runs `work` on all items, several at a time. A thread stops at its first failure. Returns the first failure.
pub(crate) fn on_threads<T: Send>(
    work: impl Iterator<Item = T> + Send,
    run: impl Fn(T) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let work = Mutex::new(work);
    let next = || lock(&work).next();
    let worker = || {
        while let Some(item) = next() {
            run(item)?;
        }
        Ok(())
    };
    let count = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
