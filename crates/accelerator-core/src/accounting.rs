//! Memory that the backend counts itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{MemoryInfo, MemoryInfoSource};

/// Counts the bytes that a backend hands out, for drivers that do not report free memory or that hand out more memory
/// than the device has.
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

    /// Returns `len` bytes that were taken.
    pub fn give_back(&self, len: u64) {
        self.used.fetch_sub(len, Ordering::Relaxed);
    }

    /// The free and total memory by this count.
    pub fn memory_info(&self) -> MemoryInfo {
        let free = self.capacity - self.used.load(Ordering::Relaxed);
        MemoryInfo::new(free, self.capacity, MemoryInfoSource::Accounting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_capacity_is_taken() {
        let accounting = Accounting::new(100);
        assert!(accounting.take(60) && accounting.take(40) && accounting.take(0));
        assert!(!accounting.take(1) && !accounting.take(u64::MAX));
        accounting.give_back(40);
        assert_eq!(accounting.memory_info().free, 40);
        assert!(!accounting.take(41) && accounting.take(40));
    }
}
