//! Made-up addresses.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::types::{DriverError, DriverErrorKind, DriverResult};

/// The first address: higher than those of most real memory, so that the two are easily told apart.
const FIRST: u64 = 0x1000_0000_0000;
/// The alignment of all addresses.
const STEP: u64 = 2 << 20;

/// The memory of a device whose driver has handles instead of addresses, found by made-up addresses.
///
/// Each segment gets a range of addresses that starts at a multiple of 2 MiB and is never used again. The pointers of
/// such a backend contain an address for [`DevicePtr::trace_address`](crate::DevicePtr::trace_address), and the table
/// leads from any address in a segment back to its memory.
///
/// ```
/// use std::num::NonZeroU64;
///
/// use accelerator_core::backend_kit::SegmentTable;
///
/// # fn main() -> accelerator_core::DriverResult<()> {
/// let mut segments = SegmentTable::new();
/// let start = segments.add(NonZeroU64::new(4096).unwrap(), "the handle")?;
/// assert_eq!(segments.find(start + 100), Some((&"the handle", 100)));
/// assert_eq!(segments.find(start + 4096), None);
/// assert_eq!(segments.remove(start), Some("the handle"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentTable<T> {
    next: u64,
    /// Live segments by their first address.
    live: BTreeMap<u64, Segment<T>>,
}

#[derive(Debug)]
struct Segment<T> {
    len: u64,
    memory: T,
}

impl<T> SegmentTable<T> {
    /// Makes a table without segments.
    pub const fn new() -> Self {
        Self { next: FIRST, live: BTreeMap::new() }
    }

    /// Adds a segment of `len` bytes. Returns its first address.
    ///
    /// # Errors
    /// [`OutOfMemory`](DriverErrorKind::OutOfMemory) if 2⁶⁴ bytes of addresses have been used; `memory` is dropped.
    pub fn add(&mut self, len: NonZeroU64, memory: T) -> DriverResult<u64> {
        let why = "all addresses of the device have been used: start the program again";
        let used_up = DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", why);
        let (start, len) = (self.next, len.get());
        let span = len.checked_next_multiple_of(STEP).ok_or(used_up)?;
        self.next = start.checked_add(span).ok_or(used_up)?;
        self.live.insert(start, Segment { len, memory });
        Ok(start)
    }

    /// Removes the segment that starts at this address. Drop its memory after the lock around the table: that may call
    /// the driver.
    pub fn remove(&mut self, start: u64) -> Option<T> {
        self.live.remove(&start).map(|segment| segment.memory)
    }

    /// Returns the memory of the segment that contains this address, and the offset in it.
    pub fn find(&self, address: u64) -> Option<(&T, u64)> {
        let (start, segment) = self.live.range(..=address).next_back()?;
        let offset = address - start;
        (offset < segment.len).then_some((&segment.memory, offset))
    }

    /// Like [`find`](Self::find), for changes.
    pub fn find_mut(&mut self, address: u64) -> Option<(&mut T, u64)> {
        let (start, segment) = self.live.range_mut(..=address).next_back()?;
        let offset = address - start;
        (offset < segment.len).then_some((&mut segment.memory, offset))
    }
}

impl<T> Default for SegmentTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: u64) -> NonZeroU64 {
        NonZeroU64::new(len).unwrap()
    }

    #[test]
    fn every_address_of_a_segment_leads_to_it_and_no_other_does() {
        let mut table = SegmentTable::new();
        let lens = [1, STEP - 1, STEP, STEP + 1, 3];
        let starts = lens.map(|len| table.add(bytes(len), len).unwrap());
        for (start, len) in starts.into_iter().zip(lens) {
            assert!(start.is_multiple_of(STEP));
            assert_eq!([start, start + len - 1].map(|at| table.find(at)), [Some((&len, 0)), Some((&len, len - 1))]);
            assert_ne!(table.find(start + len).map(|(found, _)| *found), Some(len));
        }
        assert_eq!((table.find(FIRST - 1), table.find(u64::MAX)), (None, None));
        *table.find_mut(starts[2] + 7).unwrap().0 = 70;
        assert_eq!(table.find(starts[2]), Some((&70, 0)));
        assert!(table.find_mut(starts[0] + 1).is_none());
    }

    #[test]
    fn a_segment_is_removed_once_by_its_start_and_its_addresses_are_not_used_again() {
        let mut table = SegmentTable::new();
        let start = table.add(bytes(100), 'a').unwrap();
        assert_eq!(table.remove(start + 1), None);
        assert_eq!((table.remove(start), table.remove(start), table.find(start)), (Some('a'), None, None));
        assert!(table.add(bytes(100), 'b').unwrap() > start);
    }

    #[test]
    fn the_addresses_run_out_with_an_error_that_drops_the_memory() {
        let mut table = SegmentTable::new();
        let memory = std::sync::Arc::new(());
        table.add(bytes(u64::MAX - 2 * FIRST), memory.clone()).unwrap();
        for len in [u64::MAX, FIRST] {
            let refused = table.add(bytes(len), memory.clone());
            assert_eq!(refused.unwrap_err().kind, DriverErrorKind::OutOfMemory);
        }
        assert_eq!(std::sync::Arc::strong_count(&memory), 2);
        let start = table.add(bytes(1), memory.clone()).unwrap();
        assert_eq!(table.find(start), Some((&memory, 0)), "a small segment still fits");
    }
}
