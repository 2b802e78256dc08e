//! The one state of a driver, and the lock around it.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::face::Face;

/// A driver of a process, made at the first call.
pub struct Lock<F> {
    make: fn() -> F,
    face: OnceLock<Mutex<F>>,
    /// Told when work finishes on another thread than the one that started it.
    finished: Condvar,
    /// The process that started the driver; 0: none has.
    owner: AtomicU32,
    log: OnceLock<Option<File>>,
}

impl<F: Face> Lock<F> {
    /// For a `static` of the face.
    pub const fn new(make: fn() -> F) -> Self {
        Self {
            make,
            face: OnceLock::new(),
            finished: Condvar::new(),
            owner: AtomicU32::new(0),
            log: OnceLock::new(),
        }
    }

    /// Remembers whose driver this is: forked children of the process cannot use it.
    pub fn own(&self) {
        self.owner.store(std::process::id(), Ordering::Relaxed);
    }

    pub(crate) fn is_forked(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner != std::process::id()
    }

    /// The file to which calls are written, if the environment names one.
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
    /// Absent only while it waits for others.
    guard: Option<MutexGuard<'static, F>>,
}

impl<F: Face> Session<F> {
    /// Takes the lock.
    #[allow(clippy::new_without_default, reason = "a lock is taken on purpose")]
    pub fn new() -> Self {
        Self { guard: Some(F::lock().face().lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Gives up the lock until another thread calls [`Session::tell_others`], as the engine does when a host
    /// function has returned.
    pub fn wait_for_others(&mut self) {
        let guard = self.guard.take();
        let wait = |guard| F::lock().finished.wait(guard).unwrap_or_else(PoisonError::into_inner);
        self.guard = guard.map(wait);
    }

    /// The same, but for no longer than this.
    pub fn wait_for_others_at_most(&mut self, most: Duration) {
        let guard = self.guard.take();
        let wait =
            |guard| F::lock().finished.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0;
        self.guard = guard.map(wait);
    }

    /// Wakes those who wait for others.
    pub fn tell_others(&self) {
        F::lock().finished.notify_all();
    }
}

impl<F: Face> Deref for Session<F> {
    type Target = F;

    fn deref(&self) -> &F {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the lock is back when waiting ends"),
        }
    }
}

impl<F: Face> DerefMut for Session<F> {
    fn deref_mut(&mut self) -> &mut F {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the lock is back when waiting ends"),
        }
    }
}
