//! Bytes of simulated memory: committed by the system only where they are touched.

use std::ptr::NonNull;

/// A fresh byte of memory that nobody has written.
pub(crate) const FRESH: u8 = 0xCD;

/// So much at each end of fresh memory holds [`FRESH`]; filling it all would commit it all.
const MARKED: usize = 16 << 10;

pub(crate) struct Backing {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread; every access happens under the driver's lock.
unsafe impl Send for Backing {}

impl Backing {
    /// Memory of so many bytes, more than none; `None`: the machine has no address space left for it.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let backing = Self { start: NonNull::new(start.cast())?, bytes };
        let marked = bytes.min(MARKED);
        for offset in [0, bytes - marked] {
            // SAFETY: `marked` bytes from either offset lie inside the mapping.
            unsafe { backing.at(offset).write_bytes(FRESH, marked) };
        }
        Some(backing)
    }

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
        // SAFETY: the mapping is this one's own, and nobody is given a pointer beyond the driver's lock,
        // except to pinned memory, which its owner frees.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
