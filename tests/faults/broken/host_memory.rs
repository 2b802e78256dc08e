//! Host memory that is wrong.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Mutex;

use accelerator_core::{Backend, DriverError, DriverErrorKind, DriverResult};

use super::{lock, of_kind};
use crate::fault::{Fault, has, planted};

/// The host memory that was handed out.
#[derive(Default)]
pub(super) struct HostMemory {
    live: Mutex<BTreeMap<usize, Live>>,
    /// The middle of the last allocation, and the bytes that follow it.
    middle: Mutex<Option<(usize, u64)>>,
}

struct Live {
    len: NonZeroU64,
    /// What the inner driver gave for it, unless that belongs to another.
    inner: Option<(NonNull<u8>, NonZeroU64)>,
}

// SAFETY: The pointer is only given back to the driver, which any thread may do.
unsafe impl Send for Live {}

/// What an address is off by, to be aligned to 8 bytes only.
const OFF: usize = 8;

/// The alignment that host memory must have.
const ALIGNMENT: u64 = 64;

/// The least length of an allocation that another one overlaps.
pub(super) const OVERLAPPING: NonZeroU64 = NonZeroU64::MIN.saturating_add(65_535);

impl HostMemory {
    /// Whether the bytes there are host memory of the driver.
    pub(super) fn contains(&self, at: NonNull<u8>) -> bool {
        let (live, at) = (lock(&self.live), at.addr().get());
        let before = live.range(..=at).next_back();
        before.is_some_and(|(start, live)| at < start + live.len.get() as usize)
    }

    pub(super) fn alloc<B: Backend>(&self, inner: &B, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let (handed, given) = self.taken(inner, len)?;
        lock(&self.live).insert(handed.addr().get(), Live { len, inner: given });
        Ok(handed)
    }

    /// Returns what is handed out, and what the inner driver gave for it.
    #[expect(clippy::type_complexity, reason = "a pointer, and a pointer with its length")]
    fn taken<B: Backend>(
        &self,
        inner: &B,
        len: NonZeroU64,
    ) -> DriverResult<(NonNull<u8>, Option<(NonNull<u8>, NonZeroU64)>)> {
        let more = match planted() {
            Some(Fault::AllocHostMisaligned) => len.saturating_add(64),
            Some(Fault::AllocHostOverlaps) => {
                if let Some((middle, _)) = lock(&self.middle).take_if(|(_, room)| *room >= len.get()) {
                    let middle = NonNull::new(std::ptr::with_exposed_provenance_mut(middle));
                    return middle.map(|middle| (middle, None)).ok_or_else(no_memory);
                }
                len.saturating_mul(TWO).max(OVERLAPPING)
            }
            _ => len,
        };
        let given = inner.alloc_host(more);
        if has(Fault::AllocHostPanics) && given.is_err() {
            panic!("called `Result::unwrap()` on an `Err` value: out of memory");
        }
        let given = match planted() {
            Some(Fault::AllocHostRefusesAsOther) => given.map_err(|error| of_kind(DriverErrorKind::Other, error))?,
            _ => given?,
        };
        let handed = match planted() {
            // SAFETY: The allocation is longer by more than this.
            Some(Fault::AllocHostMisaligned) => unsafe { given.add(OFF) },
            Some(Fault::AllocHostOverlaps) => {
                let offset = len.get() / 2 / ALIGNMENT * ALIGNMENT;
                // SAFETY: The allocation has at least twice the length.
                let middle = unsafe { given.add(offset as usize) };
                *lock(&self.middle) = Some((middle.as_ptr().expose_provenance(), more.get() - offset));
                given
            }
            _ => given,
        };
        Ok((handed, Some((given, more))))
    }

    /// # Safety
    /// As for [`Backend::dealloc_host`].
    pub(super) unsafe fn dealloc<B: Backend>(&self, inner: &B, ptr: NonNull<u8>, _len: NonZeroU64) {
        let mut live = lock(&self.live);
        let taken = live.remove(&ptr.addr().get());
        if has(Fault::DeallocHostFreesAnother)
            && let Some((other, len)) = live.values().find_map(|live| live.inner)
        {
            // SAFETY: The memory is live. The program may use it at the same time, which is the fault.
            unsafe { other.write_bytes(0xdd, len.get() as usize) };
        }
        // Memory of two overlapping allocations stays, since the other half may be in use.
        if let Some((given, len)) = taken.and_then(|live| live.inner)
            && !has(Fault::AllocHostOverlaps)
        {
            // SAFETY: The inner driver gave it, and it was listed as live until now.
            unsafe { inner.dealloc_host(given, len) };
        }
    }
}

pub(super) const TWO: NonZeroU64 = NonZeroU64::MIN.saturating_add(1);

fn no_memory() -> DriverError {
    DriverError::refused(DriverErrorKind::OutOfMemory, "alloc_host", "out of memory")
}
