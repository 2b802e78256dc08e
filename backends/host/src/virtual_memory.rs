//! Address space and memory, separately: ranges of an in-memory file, mapped at any address.

mod foreign;
mod private;

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};

use accelerator_core::backend_kit::{Accounting, Health, byte_count, lock};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult, MIB, Pages, VirtualMemory};

pub(crate) use self::foreign::NOT_EXPORTED;
use self::foreign::{FOREIGN, Foreign};
pub(crate) use self::private::PrivatePager;
use crate::access::{Backing, Bytes, Touched};
use crate::memory::{FULL, HostPtr, full};
use crate::process;
use crate::ranges::Ranges;

/// The size of a huge page, which the system can use for such ranges. Linux allows 65,530 mappings, which with pages of
/// 4 KiB could be as little as 256 MiB.
const GRANULARITY: NonZeroU64 = NonZeroU64::MIN.saturating_add(2 * MIB - 1);

/// Shown in `/proc/self/maps`.
const NAME: &CStr = c"accelerator";

/// Maps the memory of one device.
#[derive(Debug)]
pub(crate) struct Pager {
    health: Health,
    accounting: Arc<Accounting>,
    /// Opened at the first allocation: most devices need none, and a process may be limited to few open files.
    file: OnceLock<File>,
    taken: Mutex<Taken>,
    space: AddressSpace,
    /// Mappings by start address.
    mappings: Mutex<BTreeMap<usize, Mapping>>,
    /// Memory of other processes, by its handle.
    foreign: Mutex<Foreign>,
}

/// The ranges of the file that are in use.
#[derive(Debug, Default)]
struct Taken {
    ranges: Ranges,
    file_len: u64,
}

/// A mapped range of the file.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    len: usize,
    /// The number of the file.
    file: u64,
    /// The offset in the file at which it starts.
    offset: usize,
}

/// The address space that a device has reserved.
#[derive(Debug, Default)]
struct AddressSpace(Mutex<HashMap<HostPtr, Reservation>>);

impl AddressSpace {
    fn reserve(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        let len = byte_count(len);
        // SAFETY: New pages wherever the system has room. Nothing is replaced.
        let start = unsafe { map_nothing(ptr::null_mut(), len, 0) }?;
        lock(&self.0).insert(start, Reservation { start, len });
        Ok(start)
    }

    fn release(&self, start: HostPtr) {
        drop(lock(&self.0).remove(&start));
    }

    /// Forgets all of it, in a forked child: the addresses may belong to something else.
    fn forget(&mut self) {
        process::forget(&mut self.0);
    }
}

/// Address space, given back when it is dropped.
#[derive(Debug)]
struct Reservation {
    start: HostPtr,
    len: usize,
}

impl Pager {
    /// Returns `None` if the system has no in-memory files.
    pub(crate) fn new(accounting: Arc<Accounting>) -> Option<Self> {
        static OFFERED: LazyLock<bool> = LazyLock::new(|| open().is_ok());
        let pager = Self {
            health: process::health(),
            accounting,
            file: OnceLock::new(),
            taken: Mutex::default(),
            space: AddressSpace::default(),
            mappings: Mutex::default(),
            foreign: Mutex::default(),
        };
        OFFERED.then_some(pager)
    }

    fn file(&self) -> DriverResult<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = open().map_err(|error| refused("memfd_create", &error))?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Takes a range of the file and makes the file long enough.
    fn take(&self, len: u64) -> DriverResult<u64> {
        let file = self.file()?;
        let mut taken = lock(&self.taken);
        let start = taken.ranges.take(len).ok_or(FULL)?;
        let end = start + len;
        if end > taken.file_len {
            if let Err(error) = file.set_len(end) {
                taken.ranges.give_back(start, len);
                return Err(full("ftruncate", code(&error)));
            }
            taken.file_len = end;
        }
        Ok(start)
    }

    /// Returns the bytes behind these addresses, which are in use and so stay mapped as they are.
    pub(crate) fn behind(&self, touched: &Touched, bytes: &mut Vec<Bytes>) {
        let Range { mut start, end } = touched.addresses;
        let first = bytes.len();
        let mut add = |memory, range| {
            let more = touched.bytes(memory, range);
            // Pages that are neighbours here are mostly neighbours in the file as well. They become one range, since
            // all ranges are compared with each other.
            if !bytes[first..].last_mut().is_some_and(|last| last.extend(&more)) {
                bytes.push(more);
            }
        };
        let mappings = self.mappings();
        let below = mappings.range(..=start).next_back();
        for (at, mapping) in below.into_iter().chain(mappings.range(start.saturating_add(1)..end)) {
            let (from, to) = (start.max(*at), end.min(at + mapping.len));
            if from >= to {
                continue; // the mapping below ends before it
            }
            if start < from {
                add(Backing::Private, start..from);
            }
            add(Backing::File(mapping.file), mapping.offset + (from - at)..mapping.offset + (to - at));
            start = to;
        }
        if start < end {
            add(Backing::Private, start..end);
        }
    }

    /// Maps a range of a file.
    ///
    /// # Safety
    /// * The addresses are reserved, and nothing uses the mapping that is replaced there.
    unsafe fn map_file(&self, at: HostPtr, file: &File, offset: u64, len: NonZeroU64) -> DriverResult<()> {
        let number = file.metadata().map_err(|error| refused("fstat", &error))?.ino();
        let (len, offset) = (byte_count(len), offset as libc::off_t);
        // SAFETY: The caller promises it.
        let mapped = unsafe { map_shared(at, file, offset, len) }?;
        // SAFETY: It is the mapping that was just made.
        if let Err(error) = unsafe { hide_from_children(mapped, len) } {
            // SAFETY: Nothing else knows of the mapping yet.
            unsafe { map_nothing(at.as_ptr(), len, libc::MAP_FIXED) }?;
            return Err(error);
        }
        self.mappings().insert(mapped.as_ptr().addr(), Mapping { len, file: number, offset: offset as usize });
        Ok(())
    }

    fn mappings(&self) -> MutexGuard<'_, BTreeMap<usize, Mapping>> {
        lock(&self.mappings)
    }
}

// SAFETY: The system gives each reservation its own addresses. A range of the file belongs to one memory until that
// is destroyed, and a shared mapping of it is valid until another one replaces it. Memory may have two addresses. Work
// may be under way at one of them, on any stream, when it is handed out at the other. `Access` keeps work on the same
// range of the file apart.
unsafe impl VirtualMemory<HostPtr> for Pager {
    fn granularity(&self) -> NonZeroU64 {
        GRANULARITY
    }

    fn maps_twice(&self) -> bool {
        true
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.health.check()?;
        whole_pages(len)?;
        self.space.reserve(len)
    }

    unsafe fn release(&self, at: HostPtr, _len: NonZeroU64) {
        if self.health.is_forked() {
            return; // the addresses may belong to something else
        }
        self.space.release(at);
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.health.check()?;
        whole_pages(len)?;
        let start = self.accounting.alloc(len.get(), FULL, || self.take(len.get()))?;
        Ok(Pages::new(start, len))
    }

    unsafe fn destroy(&self, pages: Pages) {
        if self.health.is_forked() {
            return; // the file belongs to the parent
        }
        let (start, len) = (pages.handle, pages.len.get());
        if start >= FOREIGN {
            drop(lock(&self.foreign).pages.remove(&start));
            return;
        }
        let Some(file) = self.file.get() else { return };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: The caller gives up the range, which is within the file. If the system refuses, the pages are kept
        // until the range is reused.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, start as libc::off_t, len as libc::off_t) };
        lock(&self.taken).ranges.give_back(start, len);
        self.accounting.give_back(len);
    }

    unsafe fn map(&self, at: HostPtr, pages: &Pages) -> DriverResult<()> {
        self.health.check()?;
        if pages.handle >= FOREIGN {
            let foreign = lock(&self.foreign);
            let Some((file, offset)) = foreign.pages.get(&pages.handle) else { return Err(NOT_EXPORTED) };
            // SAFETY: The caller promises it.
            return unsafe { self.map_file(at, file, *offset, pages.len) };
        }
        // SAFETY: The caller promises it.
        unsafe { self.map_file(at, self.file()?, pages.handle, pages.len) }
    }

    unsafe fn unmap(&self, at: HostPtr, len: NonZeroU64) -> DriverResult<()> {
        self.health.check()?;
        // SAFETY: The caller promises a whole mapping that no work uses. The addresses stay reserved.
        unsafe { map_nothing(at.as_ptr(), byte_count(len), libc::MAP_FIXED) }?;
        self.mappings().remove(&at.as_ptr().addr());
        Ok(())
    }
}

/// Makes an in-memory file that never gets shorter: a process that uses bytes beyond its end is killed.
pub(crate) fn open() -> io::Result<File> {
    // SAFETY: The name ends with 0.
    let descriptor = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The descriptor is new, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    // SAFETY: The call gets a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps a range of a file, also for the processes that have it.
///
/// # Safety
/// * The addresses are those of a mapping of this process, which nothing uses while it is replaced.
pub(crate) unsafe fn map_shared(at: HostPtr, file: &File, offset: libc::off_t, len: usize) -> DriverResult<HostPtr> {
    let (descriptor, access) = (file.as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: The caller promises that nothing uses the mapping that is replaced there.
    told(unsafe { libc::mmap(at.as_ptr().cast(), len, access, flags, descriptor, offset) })
}

/// Makes a mapping one that forked children do not have. They would share it.
///
/// # Safety
/// * It is one whole mapping of this process.
pub(crate) unsafe fn hide_from_children(at: HostPtr, len: usize) -> DriverResult<()> {
    // SAFETY: The caller promises it, and only what a child inherits changes.
    match unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_DONTFORK) } {
        0 => Ok(()),
        _ => Err(refused("madvise", &io::Error::last_os_error())),
    }
}

/// Maps addresses that cannot be accessed.
///
/// # Safety
/// * With `MAP_FIXED`, nothing uses the mapping that is there.
unsafe fn map_nothing(at: *mut u8, len: usize, fixed: libc::c_int) -> DriverResult<HostPtr> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: Without `MAP_FIXED` nothing is replaced. With it, the caller promises that nothing uses the old mapping.
    told(unsafe { libc::mmap(at.cast(), len, libc::PROT_NONE, flags, -1, 0) })
}

/// The result of `mmap`.
fn told(mapped: *mut libc::c_void) -> DriverResult<HostPtr> {
    match mapped {
        libc::MAP_FAILED => Err(refused("mmap", &io::Error::last_os_error())),
        start => Ok(HostPtr::new(start.cast())),
    }
}

pub(crate) fn refused(call: &'static str, error: &io::Error) -> DriverError {
    let code = code(error);
    match error.raw_os_error() {
        Some(libc::ENOMEM) => full(call, code), // no addresses left, or too many mappings
        _ => DriverError::new(DriverErrorKind::Other, call, code, "error of the operating system"),
    }
}

fn code(error: &io::Error) -> i64 {
    error.raw_os_error().unwrap_or(-1).into()
}

fn whole_pages(len: NonZeroU64) -> DriverResult<()> {
    let why = "not a multiple of the granularity";
    let refused = DriverError::new(DriverErrorKind::InvalidArgument, "mmap", 0, why);
    len.get().is_multiple_of(GRANULARITY.get()).then_some(()).ok_or(refused)
}

impl Drop for Pager {
    fn drop(&mut self) {
        if self.health.is_forked() {
            self.space.forget();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: It was reserved once and is given back once, either by a caller that promises that nothing is mapped
        // there, or together with the device.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use accelerator_core::DevicePtr;

    use super::*;

    #[test]
    fn bytes_are_told_by_their_place_in_the_file_wherever_they_are_mapped() {
        let pager = Pager::new(Arc::new(Accounting::new(64 * MIB))).unwrap();
        let file = Backing::File(pager.file().unwrap().metadata().unwrap().ino());
        let page = GRANULARITY.get() as usize;
        let space = NonZeroU64::new(8 * GRANULARITY.get()).unwrap();
        let start = pager.reserve(space).unwrap();
        let [one, other] = [(); 2].map(|()| pager.create(GRANULARITY).unwrap());
        // Pages 0, 1 and 3 of the reservation: the first piece of memory, the second, and the first again.
        for (place, pages) in [(0, &one), (1, &other), (3, &one)] {
            // SAFETY: A place in the reservation where nothing is mapped.
            unsafe { pager.map(start.offset(place * GRANULARITY.get()), pages) }.unwrap();
        }
        let behind = |from: usize, len| {
            let touched = Touched::new(start.offset(from as u64), len, true);
            let mut bytes = Vec::new();
            pager.behind(&touched, &mut bytes);
            (touched, bytes)
        };
        let at = |place: usize| start.as_ptr().addr() + place;
        let (touched, bytes) = behind(100, 2 * page);
        let expected =
            [touched.bytes(file, 100..2 * page), touched.bytes(Backing::Private, at(2 * page)..at(2 * page + 100))];
        assert_eq!(bytes, expected);
        let (touched, bytes) = behind(3 * page + 7, 10);
        assert_eq!(bytes, [touched.bytes(file, 7..17)], "the first memory, at another address");
        let (touched, bytes) = behind(2 * page - 1, page + 2);
        let expected = [
            touched.bytes(file, 2 * page - 1..2 * page),
            touched.bytes(Backing::Private, at(2 * page)..at(3 * page)),
            touched.bytes(file, 0..1),
        ];
        assert_eq!(bytes, expected);
        // SAFETY: Mapped above, and never used.
        unsafe { pager.unmap(start, GRANULARITY) }.unwrap();
        let (touched, bytes) = behind(0, 1);
        assert_eq!(bytes, [touched.bytes(Backing::Private, at(0)..at(1))], "nothing is mapped any more");
    }
}
