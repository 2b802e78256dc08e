//! Memory taken from the inner driver, and its limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard};

use accelerator_core::MemoryInfo;
use accelerator_core::backend_kit::lock;

/// The live driver allocations, under a limit.
#[derive(Debug)]
pub(super) struct Budget<P>(Mutex<State<P>>);

#[derive(Debug)]
struct State<P> {
    capacity: Option<u64>,
    used: u64,
    live: HashMap<P, NonZeroU64>,
    misuses: u64,
}

impl<P: Copy + Eq + Hash> Budget<P> {
    pub(super) fn new(capacity: Option<u64>) -> Self {
        Self(Mutex::new(State { capacity, used: 0, live: HashMap::new(), misuses: 0 }))
    }

    pub(super) fn set_capacity(&self, capacity: u64) {
        self.state().capacity = Some(capacity);
    }

    /// Sets `len` bytes aside. Returns whether they were available.
    pub(super) fn reserve(&self, len: NonZeroU64) -> bool {
        let mut state = self.state();
        let used = state.used.checked_add(len.get());
        let used = used.filter(|used| state.capacity.is_none_or(|capacity| *used <= capacity));
        state.used = used.unwrap_or(state.used);
        used.is_some()
    }

    /// Takes back the bytes set aside for an allocation that failed.
    pub(super) fn refund(&self, len: NonZeroU64) {
        self.state().used -= len.get();
    }

    pub(super) fn enter(&self, ptr: P, len: NonZeroU64) {
        self.state().live.insert(ptr, len);
    }

    /// Counts a call that is not allowed.
    pub(super) fn add_misuse(&self) {
        self.state().misuses += 1;
    }

    /// Removes an allocation. Returns whether it was there with this length; if not, counts a misuse.
    pub(super) fn remove(&self, ptr: P, len: NonZeroU64) -> bool {
        let mut state = self.state();
        let known = state.live.get(&ptr) == Some(&len);
        if known {
            state.live.remove(&ptr);
        } else {
            state.misuses += 1;
        }
        known
    }

    pub(super) fn live(&self) -> Vec<(P, NonZeroU64)> {
        self.state().live.iter().map(|(ptr, len)| (*ptr, *len)).collect()
    }

    pub(super) fn used(&self) -> u64 {
        self.state().used
    }

    pub(super) fn misuses(&self) -> u64 {
        self.state().misuses
    }

    /// Returns the inner driver's memory information, subject to the limit.
    pub(super) fn limited(&self, memory: MemoryInfo) -> MemoryInfo {
        let State { capacity, used, .. } = *self.state();
        let Some(total) = capacity else { return memory };
        MemoryInfo::new(total.saturating_sub(used).min(memory.free), total, memory.source)
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        lock(&self.0)
    }
}
