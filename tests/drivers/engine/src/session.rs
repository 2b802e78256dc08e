//! The single state of a driver, and the lock around it.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::face::Face;

/// The driver of a process, created by the first call.
pub struct Lock<F> {
    make: fn() -> F,
    face: OnceLock<Mutex<F>>,
    /// Notified when work finishes on a thread other than the one that started it.
    finished: Condvar,
    /// The process that started the driver, or 0 if none has.
    owner: AtomicU32,
    log: OnceLock<Option<File>>,
}

impl<F: Face> Lock<F> {
    /// Creates the lock for a `static` of the face.
    pub const fn new(make: fn() -> F) -> Self {
        Self { make, face: OnceLock::new(), finished: Condvar::new(), owner: AtomicU32::new(0), log: OnceLock::new() }
    }

    /// Records the process that owns this driver. Its forked children cannot use it.
    pub fn own(&self) {
        self.owner.store(std::process::id(), Ordering::Relaxed);
    }

    pub(crate) fn is_forked(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner != std::process::id()
    }

    /// Returns the file that calls are logged to, if the environment names one.
    pub(crate) fn log(&self) -> Option<&File> {
        let open = || {
            let path = std::env::var_os(format!("{}LOG", F::PREFIX))?;
            File::options().create(true).append(true).open(path).ok()
        };
        self.log.get_or_init(open).as_ref()
    }

    fn face(&self) -> &Mutex<F> {
        self.face.get_or_init(|| Mutex::new((self.make)()))
    }
}

/// The driver, locked by the calling thread.
pub struct Session<F: Face> {
    /// Absent only while it waits for another thread.
    guard: Option<MutexGuard<'static, F>>,
}

impl<F: Face> Session<F> {
    /// Takes the lock.
    #[allow(clippy::new_without_default, reason = "a lock is taken on purpose")]
    pub fn new() -> Self {
        Self { guard: Some(F::lock().face().lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Releases the lock until another thread calls [`Session::tell_others`], as the engine does when a host function
    /// has returned.
    pub fn wait_for_others(&mut self) {
        let guard = self.guard.take();
        let wait = |guard| F::lock().finished.wait(guard).unwrap_or_else(PoisonError::into_inner);
        self.guard = guard.map(wait);
    }

    /// Like [`Self::wait_for_others`], but waits at most this long.
    pub fn wait_for_others_at_most(&mut self, most: Duration) {
        let guard = self.guard.take();
        let wait = |guard| F::lock().finished.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0;
        self.guard = guard.map(wait);
    }

    /// Wakes the threads in [`Session::wait_for_others`].
    pub fn tell_others(&self) {
        F::lock().finished.notify_all();
    }
}

impl<F: Face> Deref for Session<F> {
    type Target = F;

    fn deref(&self) -> &F {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("waiting ends by taking the lock again"),
        }
    }
}

impl<F: Face> DerefMut for Session<F> {
    fn deref_mut(&mut self) -> &mut F {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("waiting ends by taking the lock again"),
        }
    }
}
