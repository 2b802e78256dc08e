//! User callbacks. They are never called under a lock.

use std::cell::Cell;

use crate::sync::{Callbacks, HookId};
use crate::types::OutOfMemory;

type FreeMemory = dyn Fn() -> bool + Send + Sync;
type Observer = dyn Fn(&OutOfMemory) + Send + Sync;

pub(crate) struct Hooks {
    pub(crate) callbacks: Callbacks<FreeMemory>,
    pub(crate) observers: Callbacks<Observer>,
}

thread_local!(static FREEING: Cell<bool> = const { Cell::new(false) });
thread_local!(static OBSERVING: Cell<bool> = const { Cell::new(false) });

impl Hooks {
    pub(crate) const fn new() -> Self {
        Self { callbacks: Callbacks::new(), observers: Callbacks::new() }
    }

    /// Runs every callback. Returns whether any of them freed memory.
    pub(crate) fn free_memory(&self) -> bool {
        let mut freed = false;
        self.callbacks.each(&FREEING, |callback| freed |= callback());
        freed
    }

    /// Passes the report to every observer.
    pub(crate) fn observe(&self, report: &OutOfMemory) {
        self.observers.each(&OBSERVING, |observer| observer(report));
    }

    /// Removes a callback or observer. Returns whether it was registered.
    pub(crate) fn remove(&self, id: HookId) -> bool {
        self.callbacks.remove(id) || self.observers.remove(id)
    }
}
