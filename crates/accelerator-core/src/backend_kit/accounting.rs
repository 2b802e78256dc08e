//! Memory that the backend counts itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{DriverError, DriverResult, MemoryInfo, MemoryInfoSource};

/// Counts the bytes that a backend hands out, for drivers that do not report free memory or that hand out more memory
/// than the device has. It refuses more than the capacity.
///
/// ```
/// use accelerator_core::backend_kit::Accounting;
/// use accelerator_core::{DriverError, DriverErrorKind};
///
/// let full = DriverError::new(DriverErrorKind::OutOfMemory, "malloc", 12, "ENOMEM");
/// let accounting = Accounting::new(1 << 20);
/// assert_eq!(accounting.alloc(1 << 20, full, || Ok("the memory")), Ok("the memory"));
/// assert_eq!(accounting.alloc(1, full, || Ok("the memory")), Err(full));
/// accounting.give_back(1 << 20);
/// assert_eq!(accounting.memory_info().free, 1 << 20);
/// ```
#[derive(Debug)]
pub struct Accounting {
    capacity: u64,
    used: AtomicU64,
}

impl Accounting {
    /// Counts from 0 up to `capacity` bytes.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, used: AtomicU64::new(0) }
    }

    /// Takes `len` bytes. Returns false, and takes nothing, if fewer are free.
    #[must_use]
    pub fn take(&self, len: u64) -> bool {
        let taken = |used: u64| used.checked_add(len).filter(|used| *used <= self.capacity);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Takes `len` bytes for the memory that `alloc` returns.
    ///
    /// # Errors
    /// `full`, if fewer bytes are free; errors of `alloc`, after which the bytes are free again.
    pub fn alloc<T>(&self, len: u64, full: DriverError, alloc: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        if !self.take(len) {
            return Err(full);
        }
        alloc().inspect_err(|_| self.give_back(len))
    }

    /// Returns `len` bytes that were taken.
    pub fn give_back(&self, len: u64) {
        self.used.fetch_sub(len, Ordering::Relaxed);
    }

    /// The free and total memory by this count.
    pub fn memory_info(&self) -> MemoryInfo {
        let free = self.capacity - self.used.load(Ordering::Relaxed);
        MemoryInfo::new(free, self.capacity, MemoryInfoSource::Accounting)
    }

    /// The free and total memory by this count, and by the driver if it reports how much is free.
    pub fn memory_info_with(&self, free_in_driver: Option<u64>) -> MemoryInfo {
        let own = self.memory_info();
        free_in_driver.map_or(own, |free| MemoryInfo::new(own.free.min(free), own.total, MemoryInfoSource::Driver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DriverErrorKind;

    #[test]
    fn no_more_than_the_capacity_is_taken() {
        let accounting = Accounting::new(100);
        assert!(accounting.take(60) && accounting.take(40) && accounting.take(0));
        assert!(!accounting.take(1) && !accounting.take(u64::MAX));
        accounting.give_back(40);
        assert_eq!(accounting.memory_info().free, 40);
        assert!(!accounting.take(41) && accounting.take(40));
    }

    #[test]
    fn what_the_driver_refuses_is_not_counted() {
        let error = |code| DriverError::new(DriverErrorKind::OutOfMemory, "alloc", code, "");
        let accounting = Accounting::new(100);
        assert_eq!(accounting.alloc(60, error(1), || Err::<(), _>(error(2))), Err(error(2)));
        assert_eq!(accounting.memory_info().free, 100);
        assert_eq!(accounting.alloc(60, error(1), || Ok(())), Ok(()));
        let mut called = false;
        let refused = accounting.alloc(60, error(1), || {
            called = true;
            Ok(())
        });
        assert_eq!((refused, called, accounting.memory_info().free), (Err(error(1)), false, 40));
    }

    #[test]
    fn free_memory_is_what_both_the_driver_and_the_capacity_allow() {
        let accounting = Accounting::new(100);
        for (reported, free) in [(30, 30), (100, 100), (u64::MAX, 100)] {
            let info = accounting.memory_info_with(Some(reported));
            assert_eq!((info.free, info.total, info.source), (free, 100, MemoryInfoSource::Driver));
        }
        let info = accounting.memory_info_with(None);
        assert_eq!((info.free, info.total, info.source), (100, 100, MemoryInfoSource::Accounting));
    }
}
