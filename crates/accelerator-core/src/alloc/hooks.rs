//! What users hang into the allocator. Never called under a lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::{lock, once};
use crate::types::OutOfMemory;

type FreeMemory = dyn Fn() -> bool + Send + Sync;
type Observer = dyn Fn(&OutOfMemory) + Send + Sync;

/// Names a callback or observer, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

#[derive(Default)]
pub(crate) struct Hooks {
    next: AtomicU64,
    free_memory: Mutex<Vec<(HookId, Arc<FreeMemory>)>>,
    observers: Mutex<Vec<(HookId, Arc<Observer>)>>,
}

impl Hooks {
    /// Runs every callback. Whether any of them freed memory.
    pub(crate) fn free_memory(&self) -> bool {
        let callbacks = lock(&self.free_memory).clone();
        let run = || callbacks.iter().fold(false, |freed, (_, callback)| callback() | freed);
        !callbacks.is_empty() && once(&FREEING, run).unwrap_or(false)
    }

    pub(crate) fn observe(&self, report: &OutOfMemory) {
        let observers = lock(&self.observers).clone();
        if !observers.is_empty() {
            once(&OBSERVING, || observers.iter().for_each(|(_, observer)| observer(report)));
        }
    }

    pub(crate) fn add_free_memory_callback(&self, callback: Arc<FreeMemory>) -> HookId {
        self.add(&self.free_memory, callback)
    }

    pub(crate) fn add_observer(&self, observer: Arc<Observer>) -> HookId {
        self.add(&self.observers, observer)
    }

    /// Removes a callback or observer. Whether it was there.
    pub(crate) fn remove(&self, id: HookId) -> bool {
        remove(&self.free_memory, id) || remove(&self.observers, id)
    }

    fn add<T: ?Sized>(&self, hooks: &Mutex<Vec<(HookId, Arc<T>)>>, hook: Arc<T>) -> HookId {
        let id = HookId(self.next.fetch_add(1, Ordering::Relaxed));
        lock(hooks).push((id, hook));
        id
    }
}

thread_local!(static FREEING: Cell<bool> = const { Cell::new(false) });
thread_local!(static OBSERVING: Cell<bool> = const { Cell::new(false) });

fn remove<T: ?Sized>(hooks: &Mutex<Vec<(HookId, Arc<T>)>>, id: HookId) -> bool {
    let mut hooks = lock(hooks);
    let place = hooks.iter().position(|(hook, _)| *hook == id);
    // Dropped outside the lock: what a closure holds is the user's.
    let removed = place.map(|place| hooks.remove(place));
    drop(hooks);
    removed.is_some()
}
