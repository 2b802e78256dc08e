//! Synchronization primitives that the layers share.

mod barrier;
mod callbacks;
mod gate;
mod in_flight;
mod in_use;
mod owned_lock;
pub(crate) mod primitives;
mod thread_number;

pub(crate) use self::callbacks::Callbacks;
pub use self::callbacks::HookId;
pub(crate) use self::gate::Gate;
pub(crate) use self::in_flight::{InFlight, Step};
pub(crate) use self::in_use::InUse;
pub(crate) use self::owned_lock::{Guard, OwnedLock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Locks a mutex, also a poisoned one. For locks under which no user code runs, so that the data is consistent after a
/// panic.
///
/// ```
/// use std::sync::Mutex;
///
/// use accelerator_core::backend_kit::lock;
///
/// let count = Mutex::new(0);
/// std::thread::scope(|scope| {
///     let panicking = scope.spawn(|| {
///         let _guard = count.lock();
///         panic!("on purpose");
///     });
///     assert!(panicking.join().is_err());
/// });
/// *lock(&count) += 1;
/// ```
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a mutex that is borrowed mutably; ignores poison like [`lock`]. No lock is taken, so it also works in a
/// forked process, where the thread that holds the lock may not exist.
///
/// ```
/// use std::sync::Mutex;
///
/// use accelerator_core::backend_kit::get_mut;
///
/// let mut pools = Mutex::new(vec![1, 2]);
/// get_mut(&mut pools).clear(); // in `drop`
/// assert!(pools.into_inner().unwrap().is_empty());
/// ```
pub fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the condition is false, and is notified of changes by `changed`; ignores poison like [`lock`].
///
/// ```
/// use std::sync::{Condvar, Mutex};
///
/// use accelerator_core::backend_kit::{lock, wait_while};
///
/// let (jobs, changed) = (Mutex::new(3), Condvar::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *lock(&jobs) = 0;
///         changed.notify_all();
///     });
///     assert_eq!(*wait_while(&changed, lock(&jobs), |jobs| *jobs > 0), 0);
/// });
/// ```
pub fn wait_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    changed.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
}

const CHUNKS: usize = 27;
/// The number of slots ahead of the chunks.
const FIRST: u32 = 32;

/// Numbered slots that are filled once and never move. They are found without a lock, and borrowed for as long as the
/// table lives.
///
/// There are 32 slots at first. Chunk `k` after them holds `32 << k` more, so 27 chunks reach every `u32`.
pub(crate) struct Table<T> {
    first: Box<[OnceLock<T>]>,
    /// The number after the last filled slot.
    end: AtomicU32,
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { first: Self::slots(FIRST), end: AtomicU32::new(0), chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

impl<T> Table<T> {
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match self.first.get(index as usize) {
            Some(slot) => slot.get(),
            None => self.get_behind_first(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_behind_first(&self, index: u32) -> Option<&T> {
        let (chunk, slot) = Self::place(index);
        self.chunks[chunk].get()?[slot].get()
    }

    /// Fills the next slot with the value that `make` returns for its number.
    pub(crate) fn push(&self, make: impl FnOnce(u32) -> T) -> (u32, &T) {
        let index = self.end.fetch_add(1, Ordering::Relaxed);
        (index, self.get_or_init(index, || make(index)))
    }

    pub(crate) fn get_or_init(&self, index: u32, make: impl FnOnce() -> T) -> &T {
        let slot = match self.first.get(index as usize) {
            Some(slot) => slot,
            None => {
                let (chunk, slot) = Self::place(index);
                &self.chunks[chunk].get_or_init(|| Self::slots(FIRST << chunk))[slot]
            }
        };
        slot.get_or_init(|| {
            let made = make();
            self.end.fetch_max(index.saturating_add(1), Ordering::Relaxed);
            made
        })
    }

    /// The filled slots, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.end.load(Ordering::Relaxed)).filter_map(|index| self.get(index))
    }

    fn slots(count: u32) -> Box<[OnceLock<T>]> {
        (0..count).map(|_| OnceLock::new()).collect()
    }

    /// The chunk, and the slot in it, of a number that is not in `first`.
    fn place(index: u32) -> (usize, usize) {
        let chunk = (index / FIRST).ilog2();
        (chunk as usize, (index - (FIRST << chunk)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_slot_of_its_own() {
        let table = Table::default();
        for index in (0..5_000).rev() {
            assert_eq!(*table.get_or_init(index, || index), index);
        }
        assert!(table.iter().copied().eq(0..5_000));
        assert_eq!(table.get(5_000), None);
        let (chunk, slot) = Table::<u32>::place(u32::MAX);
        assert!(chunk < CHUNKS && slot < (FIRST << chunk) as usize);
    }
}
