//! Device memory that is wrong.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use accelerator_core::{Backend, DevicePtr, DriverError, DriverErrorKind, DriverResult, KIB, MemoryInfo};

use super::host_memory::{OVERLAPPING, TWO};
use super::{Broken, lock, of_kind};
use crate::fault::{Fault, has, planted};

/// The device memory that was handed out.
pub(super) struct Memory<P> {
    /// By trace address.
    live: Mutex<BTreeMap<u64, Live<P>>>,
    /// The middle of the last allocation, and the bytes that follow it.
    middle: Mutex<Option<(P, u64)>>,
    /// Memory that counts as freed, and is handed out again.
    freed: Mutex<Vec<Live<P>>>,
    has_failed: AtomicBool,
    first: OnceLock<MemoryInfo>,
    /// The least free memory so far.
    least: AtomicU64,
}

#[derive(Clone, Copy)]
struct Live<P> {
    handed: P,
    len: NonZeroU64,
    /// What the inner driver gave for it, unless that belongs to another.
    inner: Option<(P, NonZeroU64)>,
}

impl<P> Default for Memory<P> {
    fn default() -> Self {
        Self {
            live: Mutex::default(),
            middle: Mutex::default(),
            freed: Mutex::default(),
            has_failed: AtomicBool::new(false),
            first: OnceLock::new(),
            least: AtomicU64::new(u64::MAX),
        }
    }
}

impl<P: DevicePtr> Memory<P> {
    /// Returns the allocation that contains this place, with the offset of the place.
    fn around(&self, at: P) -> Option<(Live<P>, u64)> {
        let live = lock(&self.live);
        let (start, live) = live.range(..=at.trace_address()).next_back()?;
        let offset = at.trace_address() - start;
        (offset < live.len.get()).then_some((*live, offset))
    }

    /// Returns the start of the allocation.
    pub(super) fn start(&self, at: P) -> P {
        self.around(at).map_or(at, |(live, _)| live.handed)
    }

    /// Returns the last place before this one, or this one, whose offset is a multiple of this many bytes.
    pub(super) fn aligned(&self, at: P, multiple: u64) -> P {
        self.around(at).map_or(at, |(live, offset)| live.handed.offset(offset / multiple * multiple))
    }

    /// Returns how many bytes of the allocation follow; `len` in memory that is mapped.
    pub(super) fn room_at(&self, at: P, len: NonZeroU64) -> u64 {
        self.around(at).map_or(len.get(), |(live, offset)| live.len.get() - offset)
    }

    fn live_bytes(&self) -> u64 {
        lock(&self.live).values().map(|live| live.len.get()).sum()
    }

    /// Returns what `memory_info` returns.
    pub(super) fn told(&self, info: MemoryInfo) -> MemoryInfo {
        let MemoryInfo { free, total, source, .. } = info;
        match planted() {
            Some(Fault::MemoryInfoSwapped) => MemoryInfo::new(total, free, source),
            Some(Fault::MemoryInfoNeverChanges) => *self.first.get_or_init(|| info),
            Some(Fault::MemoryInfoInKib) => MemoryInfo::new(free / KIB, total / KIB, source),
            Some(Fault::MemoryInfoBackwards) => MemoryInfo::new(free + 2 * self.live_bytes(), total, source),
            Some(Fault::MemoryInfoForgetsDealloc) => {
                let before = self.least.fetch_min(free, Ordering::Relaxed);
                MemoryInfo::new(free.min(before), total, source)
            }
            Some(Fault::MemoryInfoTotalIsFree) => MemoryInfo::new(free, free, source),
            _ => info,
        }
    }

    /// Takes memory of this length that counts as freed.
    fn taken_again(&self, len: NonZeroU64) -> Option<Live<P>> {
        let mut freed = lock(&self.freed);
        let place = freed.iter().position(|freed| freed.len == len)?;
        Some(freed.remove(place))
    }
}

impl<B: Backend> Broken<B> {
    pub(super) fn allocate(&self, len: NonZeroU64) -> DriverResult<B::Ptr> {
        let given = self.given(len);
        let failed = given.is_err();
        if has(Fault::OutOfMemoryForEver) && self.memory.has_failed.fetch_or(failed, Ordering::Relaxed) {
            return Err(no_memory());
        }
        let total = self.inner.properties().total_memory;
        let given = given.map_err(|error| match (planted(), error.kind) {
            (Some(Fault::OutOfMemoryAsOther), DriverErrorKind::OutOfMemory) => of_kind(DriverErrorKind::Other, error),
            (Some(Fault::OutOfMemoryAsTooLarge), DriverErrorKind::OutOfMemory) => {
                of_kind(DriverErrorKind::AllocationTooLarge, error)
            }
            (Some(Fault::MoreThanAllAsTooLarge), DriverErrorKind::OutOfMemory) if len.get() > total => {
                of_kind(DriverErrorKind::AllocationTooLarge, error)
            }
            (Some(Fault::OutOfMemoryPanics), _) => {
                panic!("called `Result::unwrap()` on an `Err` value: out of memory")
            }
            _ => error,
        })?;
        lock(&self.memory.live).insert(given.handed.trace_address(), given);
        Ok(given.handed)
    }

    fn given(&self, len: NonZeroU64) -> DriverResult<Live<B::Ptr>> {
        let (stated, alignment) = (self.properties.largest_allocation(), self.inner.properties().alignment);
        let more = match planted() {
            Some(Fault::TooLargeAsOutOfMemory) if len.get() > stated => return Err(no_memory()),
            Some(Fault::LargestAllocationNotKept) if len.get() > stated / 2 => {
                let kind = DriverErrorKind::AllocationTooLarge;
                return Err(DriverError::refused(kind, "alloc", "the allocation is too large"));
            }
            Some(Fault::AllocMisaligned) => len.saturating_add(alignment),
            Some(Fault::AllocOverlaps) => {
                if let Some((handed, _)) = lock(&self.memory.middle).take_if(|(_, room)| *room >= len.get()) {
                    return Ok(Live { handed, len, inner: None });
                }
                len.saturating_mul(TWO).max(OVERLAPPING)
            }
            Some(Fault::DeallocFreesAnother | Fault::DeallocReusesAtOnce) => {
                if let Some(again) = self.memory.taken_again(len) {
                    return Ok(again);
                }
                len
            }
            _ => len,
        };
        let inner = self.inner.alloc(more)?;
        let handed = match planted() {
            Some(Fault::AllocMisaligned) => inner.offset(alignment / 2),
            Some(Fault::AllocOverlaps) => {
                let middle = len.get() / 2 / alignment * alignment;
                *lock(&self.memory.middle) = Some((inner.offset(middle), more.get() - middle));
                inner
            }
            _ => inner,
        };
        Ok(Live { handed, len, inner: Some((inner, more)) })
    }

    /// # Safety
    /// As for [`Backend::dealloc`].
    pub(super) unsafe fn deallocate(&self, ptr: B::Ptr, _len: NonZeroU64) {
        let Some(live) = lock(&self.memory.live).remove(&ptr.trace_address()) else { return };
        self.pass_on();
        match planted() {
            // Memory of two overlapping allocations stays, since the other half may be in use.
            Some(Fault::DeallocLeaks | Fault::AllocOverlaps) => return,
            Some(Fault::DeallocReusesAtOnce) => return lock(&self.memory.freed).push(live),
            Some(Fault::DeallocFreesAnother) => {
                let other = lock(&self.memory.live).values().find(|other| other.len == live.len).copied();
                return lock(&self.memory.freed).extend(other);
            }
            Some(Fault::DeallocDoesNotWait) => self.overwrite(ptr, live.len),
            _ => {}
        }
        if let Some((ptr, len)) = live.inner {
            // SAFETY: The inner driver gave it, and it was listed as live until now. All work was passed on.
            unsafe { self.inner.dealloc(ptr, len) };
        }
    }

    /// Passes on what is left of all streams' submissions.
    fn pass_on(&self) {
        let lanes: Vec<_> = lock(&self.lanes).iter().map(Arc::clone).collect();
        for lane in lanes {
            // A driver that cannot do the work fails at the next synchronize.
            let _ = self.flush(&lane);
        }
    }

    /// Overwrites memory at once, whatever work still uses it.
    fn overwrite(&self, ptr: B::Ptr, len: NonZeroU64) {
        let Some(lane) = lock(&self.lanes).first().map(Arc::clone) else { return };
        // SAFETY: The memory was not given back yet.
        let filled = unsafe { self.inner.fill(ptr, 0xdd, len, lane.beside()) };
        // If it failed, the fault does not show.
        let _ = filled.and_then(|()| self.inner.synchronize(lane.beside()));
    }
}

fn no_memory() -> DriverError {
    DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", "out of memory")
}
