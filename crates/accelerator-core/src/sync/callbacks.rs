//! Callbacks of users.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::LocalKey;

use super::lock;

/// Identifies a callback or observer, for removing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

/// Callbacks of users. They are called and dropped under no lock, since closures run the user's code.
pub(crate) struct Callbacks<F: ?Sized> {
    all: Mutex<Vec<(HookId, Arc<F>)>>,
    /// Set under the lock.
    is_empty: AtomicBool,
}

impl<F: ?Sized> Callbacks<F> {
    pub(crate) const fn new() -> Self {
        Self { all: Mutex::new(Vec::new()), is_empty: AtomicBool::new(true) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Relaxed)
    }

    /// Adds a callback. Its id is unique in the process.
    pub(crate) fn add(&self, callback: Arc<F>) -> HookId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = HookId(NEXT.fetch_add(1, Ordering::Relaxed));
        let mut all = lock(&self.all);
        all.push((id, callback));
        self.is_empty.store(false, Ordering::Relaxed);
        id
    }

    /// Removes a callback. Returns whether it was there.
    pub(crate) fn remove(&self, id: HookId) -> bool {
        let mut all = lock(&self.all);
        let place = all.iter().position(|(other, _)| *other == id);
        let removed = place.map(|place| all.remove(place));
        self.is_empty.store(all.is_empty(), Ordering::Relaxed);
        drop(all); // before the removed callback is dropped
        removed.is_some()
    }

    /// Calls each callback, unless this thread is calling them already: calls that a callback makes do not reach it
    /// again.
    pub(crate) fn each(&self, calling: &'static LocalKey<Cell<bool>>, mut call: impl FnMut(&F)) {
        struct Calling(&'static LocalKey<Cell<bool>>);
        impl Drop for Calling {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }

        if self.is_empty() || calling.get() {
            return;
        }
        let all = lock(&self.all).clone(); // dropped last: its drop may run user code
        calling.set(true);
        let _calling = Calling(calling); // also after a panic
        all.iter().for_each(|(_, callback)| call(callback));
    }
}
