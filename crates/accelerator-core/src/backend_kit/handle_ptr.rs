//! Pointers without addresses.

use std::fmt::Debug;
use std::hash::Hash;

use crate::types::DevicePtr;

/// A location in the memory of a device whose driver has handles instead of addresses: a handle and an offset.
///
/// ```
/// use accelerator_core::DevicePtr;
/// use accelerator_core::backend_kit::HandlePtr;
///
/// let segment = HandlePtr::new("the handle", 0x1000_0000_0000); // from a `SegmentTable`
/// let inside = segment.offset(512);
/// assert_eq!((inside.native(), inside.trace_address()), (("the handle", 512), 0x1000_0000_0200));
/// assert!(segment.overlaps(inside, 513) && !segment.overlaps(inside, 512));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlePtr<H> {
    handle: H,
    offset: u64,
    /// The trace address of the handle's memory.
    start: u64,
}

impl<H: Copy + Eq> HandlePtr<H> {
    /// Makes the start of a segment that has this trace address, as
    /// [`SegmentTable::add`](crate::backend_kit::SegmentTable::add) returns it.
    pub const fn new(handle: H, start: u64) -> Self {
        Self { handle, offset: 0, start }
    }

    /// Makes a location in memory that another library made, to be used as one end of a copy or fill.
    pub const fn from_native(handle: H, offset: u64) -> Self {
        Self { handle, offset, start: 0 }
    }

    /// Returns the handle, whose memory contains many blocks of the core, and the offset in bytes from its start.
    pub const fn native(self) -> (H, u64) {
        (self.handle, self.offset)
    }

    /// Whether `len` bytes from here and `len` bytes from there have any in common.
    pub fn overlaps(self, other: Self, len: u64) -> bool {
        self.handle == other.handle && self.offset.abs_diff(other.offset) < len
    }
}

impl<H: Copy + Eq + Hash + Debug + Send + Sync + 'static> DevicePtr for HandlePtr<H> {
    fn offset(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }

    fn trace_address(self) -> u64 {
        self.start + self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_only_in_the_same_memory() {
        let [one, other] = [7, 8].map(|handle| HandlePtr::from_native(handle, 100));
        assert!(!one.overlaps(other, u64::MAX));
        for (offset, len, expected) in
            [(100, 1, true), (99, 1, false), (99, 2, true), (109, 10, true), (110, 10, false)]
        {
            let there = HandlePtr::from_native(7, offset);
            assert_eq!(
                [one.overlaps(there, len), there.overlaps(one, len)],
                [expected; 2],
                "{len} bytes from {offset}"
            );
        }
    }
}
