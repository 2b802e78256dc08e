//! Bytes of simulated memory: committed by the system only where they are touched.

use std::ptr::NonNull;

/// A fresh byte of memory that nobody has written.
pub(crate) const FRESH: u8 = 0xCD;

/// So much at each end of fresh memory holds [`FRESH`]; filling it all would commit it all.
const MARKED: usize = 16 << 10;

/// Memory of this process that stands for memory of a device, or of the host.
#[derive(Debug)]
pub(crate) struct Backing {
    start: NonNull<u8>,
    bytes: usize,
    /// What of the mapping lies before the start, and behind the end.
    before: usize,
    behind: usize,
}

// SAFETY: the memory belongs to no thread; every access happens under the driver's lock.
unsafe impl Send for Backing {}

impl Backing {
    /// Memory of so many bytes, more than none; `None`: the machine has no address space left for it.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        Self::mapped(bytes, 0, |_| 0)
    }

    /// The same at a multiple of an alignment, a power of two, that is none of twice as much.
    pub(crate) fn aligned(bytes: usize, alignment: usize) -> Option<Self> {
        let twice = alignment.checked_mul(2)?;
        // What is left to the next multiple of twice the alignment, and the alignment.
        Self::mapped(bytes, twice + alignment, |start| start.wrapping_neg() % twice + alignment)
    }

    /// Memory in a mapping with more room; `before` tells from where that lies how much of it comes first.
    fn mapped(bytes: usize, room: usize, before: impl FnOnce(usize) -> usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address of the system's choice touches nothing that exists.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes.checked_add(room)?, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let before = before(start.addr());
        let start = NonNull::new(start.cast::<u8>().wrapping_add(before))?;
        let backing = Self { start, bytes, before, behind: room - before };
        let marked = bytes.min(MARKED);
        for offset in [0, bytes - marked] {
            // SAFETY: `marked` bytes from either offset lie inside the mapping.
            unsafe { backing.at(offset).write_bytes(FRESH, marked) };
        }
        Some(backing)
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a byte of it lies in the address space of this process; `offset` is at most its size.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let mapping = self.start.as_ptr().wrapping_sub(self.before);
        // SAFETY: the mapping is this one's own, and nobody is given a pointer beyond the driver's lock,
        // except to memory of the host, which its owner frees.
        unsafe { libc::munmap(mapping.cast(), self.before + self.bytes + self.behind) };
    }
}
