//! Bytes of simulated memory. The system commits them only where they are touched.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// The value of every byte at either end of memory that has not been written yet.
pub(crate) const FRESH: u8 = 0xCD;

/// How many bytes at each end of fresh memory are set to [`FRESH`]. Filling all of it would commit all of it.
const MARKED: usize = 16 << 10;

/// Memory of this process that backs device memory or host memory.
#[derive(Debug)]
pub(crate) struct Backing {
    start: NonNull<u8>,
    bytes: usize,
    /// The parts of the mapping before `start` and after the last byte.
    before: usize,
    behind: usize,
    /// The file that has the bytes, if other processes may map them.
    file: Option<File>,
}

// SAFETY: the memory belongs to no thread; every access happens under the driver's lock.
unsafe impl Send for Backing {}

impl Backing {
    /// Maps `bytes` bytes, which must not be 0. Returns `None` if the machine has no address space left.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        Self::mapped(bytes, 0, |_| 0)
    }

    /// Like [`Self::new`], but aligned to `alignment`, a power of two, and never to twice as much.
    pub(crate) fn aligned(bytes: usize, alignment: usize) -> Option<Self> {
        let twice = alignment.checked_mul(2)?;
        // The distance to the next multiple of twice the alignment, plus the alignment.
        Self::mapped(bytes, twice + alignment, |start| start.wrapping_neg() % twice + alignment)
    }

    /// Maps `room` bytes more than requested; `before` returns how many of them precede the memory, given the mapping's
    /// start.
    fn mapped(bytes: usize, room: usize, before: impl FnOnce(usize) -> usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address that the system chooses touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes.checked_add(room)?, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let before = before(start.addr());
        let start = NonNull::new(start.cast::<u8>().wrapping_add(before))?;
        let backing = Self { start, bytes, before, behind: room - before, file: None };
        let marked = bytes.min(MARKED);
        for offset in [0, bytes - marked] {
            // SAFETY: `marked` bytes from either offset lie inside the mapping.
            unsafe { backing.at(offset).write_bytes(FRESH, marked) };
        }
        Some(backing)
    }

    /// Maps a file of at least `bytes` bytes.
    pub(crate) fn of_file(file: File, bytes: usize) -> Option<Self> {
        if bytes == 0 || file.metadata().ok()?.len() < bytes as u64 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses touches nothing that exists. The file is long
        // enough, and no process makes it shorter.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast::<u8>()) };
        Some(Self { start: start?, bytes, before: 0, behind: 0, file: Some(file) })
    }

    /// Returns a file that has the bytes, which is made with this name if there is none.
    pub(crate) fn file(&mut self, name: &CStr) -> Option<&File> {
        if self.file.is_none() {
            // SAFETY: the name ends with a zero.
            let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
            if descriptor < 0 {
                return None;
            }
            // SAFETY: the descriptor is new, and nothing else owns it.
            let file = unsafe { File::from_raw_fd(descriptor) };
            // SAFETY: the mapping has this many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) };
            file.write_all_at(bytes, 0).ok()?;
            *self = Self::of_file(file, self.bytes)?;
        }
        self.file.as_ref()
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of a byte in this process. `offset` must not exceed the size.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let mapping = self.start.as_ptr().wrapping_sub(self.before);
        // SAFETY: this value owns the mapping. No pointer into it leaves the driver's lock, except to host memory,
        // which its owner frees.
        unsafe { libc::munmap(mapping.cast(), self.before + self.bytes + self.behind) };
    }
}
