//! What users hang into the allocator. Never called under a lock.

use std::cell::Cell;
use std::sync::Arc;

use crate::sync::Callbacks;
use crate::types::OutOfMemory;

type FreeMemory = dyn Fn() -> bool + Send + Sync;
type Observer = dyn Fn(&OutOfMemory) + Send + Sync;

/// Names a callback or observer, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

pub(crate) struct Hooks {
    free_memory: Callbacks<FreeMemory>,
    observers: Callbacks<Observer>,
}

thread_local!(static FREEING: Cell<bool> = const { Cell::new(false) });
thread_local!(static OBSERVING: Cell<bool> = const { Cell::new(false) });

impl Hooks {
    pub(crate) const fn new() -> Self {
        Self { free_memory: Callbacks::new(), observers: Callbacks::new() }
    }

    /// Runs every callback. Whether any of them freed memory.
    pub(crate) fn free_memory(&self) -> bool {
        let mut freed = false;
        self.free_memory.each(&FREEING, |callback| freed |= callback());
        freed
    }

    pub(crate) fn observe(&self, report: &OutOfMemory) {
        self.observers.each(&OBSERVING, |observer| observer(report));
    }

    pub(crate) fn add_free_memory_callback(&self, callback: Arc<FreeMemory>) -> HookId {
        HookId(self.free_memory.add(callback))
    }

    pub(crate) fn add_observer(&self, observer: Arc<Observer>) -> HookId {
        HookId(self.observers.add(observer))
    }

    /// Removes a callback or observer. Whether it was there.
    pub(crate) fn remove(&self, HookId(number): HookId) -> bool {
        self.free_memory.remove(number) || self.observers.remove(number)
    }
}
