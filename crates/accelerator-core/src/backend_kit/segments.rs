//! Made-up addresses.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// The first invented address: higher than those of most real memory, so that the two are easily told apart.
const FIRST: u64 = 0x1000_0000_0000;
/// The alignment of invented addresses.
const STEP: u64 = 2 << 20;

/// The memory of a device whose driver has handles instead of addresses, found by any address in it.
///
/// [`add`](Self::add) invents addresses: each segment gets a range that starts at a multiple of 2 MiB and is never used
/// again. The pointers of such a backend contain an address for
/// [`DevicePtr::trace_address`](crate::DevicePtr::trace_address). [`insert`](Self::insert) is for memory that has
/// addresses besides its handle, such as pinned memory on the host. A table has one kind or the other.
///
/// ```
/// use std::num::NonZeroU64;
///
/// use accelerator_core::backend_kit::SegmentTable;
///
/// let (len, mut segments) = (NonZeroU64::new(4096).unwrap(), SegmentTable::new());
/// let start = segments.add(len, "the handle").unwrap();
/// assert_eq!(segments.find(start + 100), Some((&"the handle", 100)));
/// assert_eq!(segments.find(start + 4096), None);
/// assert_eq!(segments.remove(start), Some("the handle"));
/// ```
#[derive(Debug)]
pub struct SegmentTable<T> {
    /// The next invented address.
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

    /// Adds a segment of `len` bytes, with invented addresses. Returns the first.
    ///
    /// # Errors
    /// The memory, to be freed, if all addresses have been used: 2⁶⁴ bytes in the life of the table.
    pub fn add(&mut self, len: NonZeroU64, memory: T) -> Result<u64, T> {
        let start = self.next;
        let end = len.get().checked_next_multiple_of(STEP).and_then(|span| start.checked_add(span));
        let Some(end) = end else { return Err(memory) };
        self.next = end;
        self.insert(start, len, memory);
        Ok(start)
    }

    /// Adds a segment of `len` bytes that has addresses of its own. No live segment may have any of them.
    pub fn insert(&mut self, start: u64, len: NonZeroU64, memory: T) {
        self.live.insert(start, Segment { len: len.get(), memory });
    }

    /// Removes the segment that starts at this address. Drop its memory after the lock around the table: that may call
    /// the driver.
    pub fn remove(&mut self, start: u64) -> Option<T> {
        self.live.remove(&start).map(|segment| segment.memory)
    }

    /// Returns the memory of the segment that contains this address, and the offset in it.
    pub fn find(&self, address: u64) -> Option<(&T, u64)> {
        self.find_range(address, 1)
    }

    /// Returns the memory of the segment that contains `len` bytes from this address, and the offset in it.
    pub fn find_range(&self, address: u64, len: u64) -> Option<(&T, u64)> {
        let (start, segment) = self.live.range(..=address).next_back()?;
        let offset = address - start;
        segment.has(offset, len).then_some((&segment.memory, offset))
    }

    /// Like [`find`](Self::find), for changes.
    pub fn find_mut(&mut self, address: u64) -> Option<(&mut T, u64)> {
        let (start, segment) = self.live.range_mut(..=address).next_back()?;
        let offset = address - start;
        segment.has(offset, 1).then_some((&mut segment.memory, offset))
    }
}

impl<T> Segment<T> {
    fn has(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl<T> Default for SegmentTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The memory of all segments, in the order of their addresses: what is left when the device is dropped.
impl<T> IntoIterator for SegmentTable<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.live.into_values().map(|segment| segment.memory).collect::<Vec<_>>().into_iter()
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
    fn when_the_addresses_run_out_the_memory_comes_back() {
        let mut table = SegmentTable::new();
        table.add(bytes(u64::MAX - 2 * FIRST), 'a').unwrap();
        assert_eq!([u64::MAX, FIRST].map(|len| table.add(bytes(len), 'b')), [Err('b'), Err('b')]);
        let start = table.add(bytes(1), 'c').unwrap();
        assert_eq!(table.find(start), Some((&'c', 0)), "a small segment still fits");
    }

    #[test]
    fn a_range_is_found_only_if_one_segment_contains_all_of_it() {
        let mut table = SegmentTable::new();
        for (start, len, name) in [(100, 50, 'a'), (150, 50, 'b'), (300, u64::MAX - 300, 'c')] {
            table.insert(start, bytes(len), name);
        }
        for (start, len, found) in [
            (100, 50, Some((&'a', 0))),
            (149, 1, Some((&'a', 49))),
            (149, 2, None),
            (150, 51, None),
            (99, 1, None),
            (200, 1, None),
            (u64::MAX - 1, 1, Some((&'c', u64::MAX - 301))),
            (u64::MAX - 1, u64::MAX, None),
        ] {
            assert_eq!(table.find_range(start, len), found, "{len} bytes from {start}");
        }
        assert!(table.into_iter().eq(['a', 'b', 'c']));
    }
}
