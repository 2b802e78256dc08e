//! Memory from the operating system: pages that cost nothing until they are touched, and read as 0.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard};

use accelerator_core::backend_kit::{Accounting, byte_count, lock};
use accelerator_core::{DevicePtr, DriverError, DriverErrorKind, DriverResult};
use memmap2::{MmapOptions, MmapRaw};

#[cfg(target_os = "linux")]
use crate::interprocess::Files;
use crate::process;

/// An address in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostPtr(*mut u8);

// SAFETY: It is an address. Code that dereferences it is responsible for the memory behind it.
unsafe impl Send for HostPtr {}
// SAFETY: As for `Send`.
unsafe impl Sync for HostPtr {}

impl HostPtr {
    pub(crate) fn new(ptr: *mut u8) -> Self {
        Self(ptr)
    }

    /// The address as a pointer.
    pub fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

impl DevicePtr for HostPtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes as usize))
    }

    fn trace_address(self) -> u64 {
        self.0.addr() as u64
    }
}

/// The memory that a device has handed out.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) accounting: Arc<Accounting>,
    /// Whether forked children have copies of it.
    #[cfg(target_os = "linux")]
    is_inherited: bool,
    maps: Mutex<HashMap<HostPtr, MmapRaw>>,
    /// The files of the memory that other processes can map.
    #[cfg(target_os = "linux")]
    pub(crate) files: Files,
}

impl Memory {
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "children always have copies"))]
    pub(crate) fn new(capacity: u64, is_inherited: bool) -> Self {
        Self {
            accounting: Arc::new(Accounting::new(capacity)),
            #[cfg(target_os = "linux")]
            is_inherited,
            maps: Mutex::default(),
            #[cfg(target_os = "linux")]
            files: Files::default(),
        }
    }

    pub(crate) fn map(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        let refused = |error: io::Error| full("mmap", error.raw_os_error().unwrap_or(-1).into());
        let map = self.accounting.alloc(len.get(), FULL, || {
            let map = MmapOptions::new().len(byte_count(len)).no_reserve_swap().map_anon().map_err(refused)?;
            let map = MmapRaw::from(map); // never a slice: kernels write to it
            // As with other device memory, a forked child has no use for it, and would cause copies when the parent
            // writes to its pages.
            #[cfg(target_os = "linux")]
            if !self.is_inherited {
                map.advise(memmap2::Advice::DontFork).map_err(refused)?;
            }
            Ok(map)
        })?;
        let start = HostPtr(map.as_mut_ptr());
        self.maps().insert(start, map);
        Ok(start)
    }

    /// Removes a mapping that `map` returned. Drop the result when no work touches it any more.
    pub(crate) fn take_back(&self, start: HostPtr) -> Option<MmapRaw> {
        #[cfg(target_os = "linux")]
        self.files.remove(start);
        let map = self.maps().remove(&start)?;
        self.accounting.give_back(map.len() as u64);
        Some(map)
    }

    /// Forgets all addresses without unmapping them: in a forked child they may belong to something else.
    pub(crate) fn forget(&mut self) {
        process::forget(&mut self.maps);
        #[cfg(target_os = "linux")]
        self.files.forget();
    }

    fn maps(&self) -> MutexGuard<'_, HashMap<HostPtr, MmapRaw>> {
        lock(&self.maps)
    }
}

/// The error for a used-up capacity, with code 0. Otherwise the system's error is returned.
pub(crate) const FULL: DriverError = full("mmap", 0);

pub(crate) const fn full(call: &'static str, code: i64) -> DriverError {
    DriverError::new(DriverErrorKind::OutOfMemory, call, code, "out of memory")
}

/// Returns the machine's memory in bytes, or 0 if the system does not report it.
pub(crate) fn of_machine() -> u64 {
    // SAFETY: `sysconf` only reads its argument.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0) * page_size()
}

pub(crate) fn page_size() -> u64 {
    // SAFETY: `sysconf` only reads its argument.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}
