//! Memory that forked children inherit as copies. Each piece has addresses of its own, where it is while it is mapped
//! nowhere: its pages move from there to the addresses at which it is mapped, and back.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex};

use accelerator_core::backend_kit::{Accounting, Health, byte_count, lock};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Pages, VirtualMemory};

use super::{AddressSpace, GRANULARITY, map_nothing, refused, told, whole_pages};
use crate::memory::{FULL, HostPtr};
use crate::process;

/// Maps the private memory of one device.
#[derive(Debug)]
pub(crate) struct PrivatePager {
    health: Health,
    accounting: Arc<Accounting>,
    space: AddressSpace,
    mapped: Mutex<Mapped>,
}

#[derive(Debug, Default)]
struct Mapped {
    /// The home of the pages at each address.
    homes: HashMap<HostPtr, HostPtr>,
    /// The homes whose pages are away.
    empty: HashSet<HostPtr>,
    /// Addresses that may belong to something else, since the system released them. Nothing is done there any more.
    lost: BTreeSet<usize>,
}

impl Mapped {
    /// Reserves addresses again after pages could not be moved there: the system may have released them before.
    fn reserve_again(&mut self, at: HostPtr, len: usize) {
        // SAFETY: Nothing is replaced.
        if unsafe { map_nothing(at.as_ptr(), len, libc::MAP_FIXED_NOREPLACE) }.is_err() {
            self.lost.insert(at.as_ptr().addr());
        }
    }
}

impl PrivatePager {
    /// Returns `None` if the system cannot move pages and keep the addresses that they leave, as Linux can since 5.7.
    pub(crate) fn new(accounting: Arc<Accounting>) -> Option<Self> {
        static OFFERED: LazyLock<bool> = LazyLock::new(|| {
            let there = [(); 2].map(|()| map(byte_count(GRANULARITY)));
            let [Ok(from), Ok(to)] = there else { return false };
            // SAFETY: Both ranges are new, and nothing else uses them.
            let moved = unsafe { move_pages(from, to, byte_count(GRANULARITY)) }.is_ok();
            for range in [from, to] {
                // SAFETY: As above.
                unsafe { unmap(range, byte_count(GRANULARITY)) };
            }
            moved
        });
        let (health, space, mapped) = (process::health(), AddressSpace::default(), Mutex::default());
        OFFERED.then_some(Self { health, accounting, space, mapped })
    }
}

// SAFETY: The system gives each reservation its own addresses, and each piece of memory its own home. The pages are at
// one of the two at any time. Both ranges are readable and writable while the pages are there.
unsafe impl VirtualMemory<HostPtr> for PrivatePager {
    fn granularity(&self) -> NonZeroU64 {
        GRANULARITY
    }

    fn maps_twice(&self) -> bool {
        false
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.health.check()?;
        whole_pages(len)?;
        self.space.reserve(len)
    }

    unsafe fn release(&self, at: HostPtr, len: NonZeroU64) {
        let start = at.as_ptr().addr();
        let has_lost = lock(&self.mapped).lost.range(start..start + byte_count(len)).next().is_some();
        if !self.health.is_forked() && !has_lost {
            self.space.release(at);
        }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.health.check()?;
        whole_pages(len)?;
        let home = self.accounting.alloc(len.get(), FULL, || map(byte_count(len)))?;
        Ok(Pages::new(home.as_ptr().expose_provenance() as u64, len))
    }

    unsafe fn destroy(&self, pages: Pages) {
        if self.health.is_forked() {
            return; // the child's copy stays
        }
        // SAFETY: The caller promises memory of `create` that is mapped nowhere, so its pages are at home.
        unsafe { unmap(home(&pages), byte_count(pages.len)) };
        self.accounting.give_back(pages.len.get());
    }

    unsafe fn map(&self, at: HostPtr, pages: &Pages) -> DriverResult<()> {
        self.health.check()?;
        let (from, len) = (home(pages), byte_count(pages.len));
        let mut mapped = lock(&self.mapped);
        if mapped.empty.contains(&from) {
            return Err(MAPPED);
        }
        if mapped.lost.contains(&at.as_ptr().addr()) {
            return Err(LOST);
        }
        // SAFETY: The caller promises a reserved range where nothing is mapped. The pages are at home.
        if let Err(error) = unsafe { move_pages(from, at, len) } {
            mapped.reserve_again(at, len);
            return Err(error);
        }
        mapped.homes.insert(at, from);
        mapped.empty.insert(from);
        // The system may count what can be written, even without memory.
        // SAFETY: The pages have left, and the addresses stay reserved in any case.
        let _ = unsafe { map_nothing(from.as_ptr(), len, libc::MAP_FIXED) };
        Ok(())
    }

    unsafe fn unmap(&self, at: HostPtr, len: NonZeroU64) -> DriverResult<()> {
        self.health.check()?;
        let mut mapped = lock(&self.mapped);
        let home = *mapped.homes.get(&at).ok_or(NOT_MAPPED)?;
        if mapped.lost.contains(&home.as_ptr().addr()) {
            return Err(LOST);
        }
        // SAFETY: The caller promises a whole mapping that no work uses. Its home has been empty since `map`.
        if let Err(error) = unsafe { move_pages(at, home, byte_count(len)) } {
            mapped.reserve_again(home, byte_count(len));
            return Err(error);
        }
        mapped.homes.remove(&at);
        mapped.empty.remove(&home);
        // The addresses stay reserved. If this fails, they can still be accessed, and have no memory nevertheless.
        // SAFETY: The pages have left.
        let _ = unsafe { map_nothing(at.as_ptr(), byte_count(len), libc::MAP_FIXED) };
        Ok(())
    }
}

impl Drop for PrivatePager {
    fn drop(&mut self) {
        if self.health.is_forked() {
            self.space.forget();
        }
    }
}

const MAPPED: DriverError =
    DriverError::refused(DriverErrorKind::InvalidArgument, "mremap", "the memory is mapped at another address");
const LOST: DriverError =
    DriverError::refused(DriverErrorKind::Other, "mremap", "the addresses may belong to something else by now");
const NOT_MAPPED: DriverError =
    DriverError::refused(DriverErrorKind::InvalidArgument, "mremap", "nothing is mapped at this address");

/// The addresses of a piece of memory while it is mapped nowhere.
fn home(pages: &Pages) -> HostPtr {
    HostPtr::new(ptr::with_exposed_provenance_mut(pages.handle as usize))
}

/// Makes pages of this process alone.
fn map(len: usize) -> DriverResult<HostPtr> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: New pages wherever the system has room. Nothing is replaced.
    told(unsafe { libc::mmap(ptr::null_mut(), len, access, flags | libc::MAP_NORESERVE, -1, 0) })
}

/// Gives pages back.
///
/// # Safety
/// * They came from `map`, and nothing uses them.
unsafe fn unmap(start: HostPtr, len: usize) {
    // SAFETY: The caller promises it.
    unsafe { libc::munmap(start.as_ptr().cast(), len) };
}

/// Moves pages. Their old addresses stay mapped, without memory.
///
/// # Safety
/// * Nothing uses either range, and `from` has pages of `map`.
unsafe fn move_pages(from: HostPtr, to: HostPtr, len: usize) -> DriverResult<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let (from, to) = (from.as_ptr().cast::<libc::c_void>(), to.as_ptr().cast::<libc::c_void>());
    // SAFETY: The caller promises it.
    match unsafe { libc::mremap(from, len, len, flags, to) } {
        libc::MAP_FAILED => Err(refused("mremap", &io::Error::last_os_error())),
        _ => Ok(()),
    }
}
