//! Virtual memory that is wrong.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Mutex;

use accelerator_core::{Backend, DevicePtr, DriverError, DriverErrorKind, DriverResult, Pages, VirtualMemory};

use super::{Broken, lock};
use crate::fault::{Fault, has, planted};

/// The address space that was reserved, and where memory is mapped.
pub(super) struct Mappings<P> {
    reserved: Mutex<BTreeMap<u64, (P, NonZeroU64)>>,
    /// How often the memory with this handle was mapped.
    mapped: Mutex<BTreeMap<u64, u32>>,
}

impl<P> Default for Mappings<P> {
    fn default() -> Self {
        Self { reserved: Mutex::default(), mapped: Mutex::default() }
    }
}

impl<P: DevicePtr> Mappings<P> {
    fn start(&self, at: P) -> P {
        lock(&self.reserved).range(..=at.trace_address()).next_back().map_or(at, |(_, (start, _))| *start)
    }

    /// Takes address space of this length that another thread has. It stays reserved for ever, so that whoever maps
    /// memory there does no harm to the inner driver.
    fn taken_over(&self, len: NonZeroU64) -> Option<P> {
        let mut reserved = lock(&self.reserved);
        let (address, start) =
            reserved.values().find(|(_, other)| *other == len).map(|(at, _)| (at.trace_address(), *at))?;
        reserved.remove(&address);
        Some(start)
    }
}

impl<B: Backend> Broken<B> {
    fn inner_memory(&self, call: &'static str) -> DriverResult<&dyn VirtualMemory<B::Ptr>> {
        let gone = DriverError::refused(DriverErrorKind::Unsupported, call, "the driver has no virtual memory");
        self.inner.virtual_memory().ok_or(gone)
    }
}

/// The granularity of a driver that states too small a one.
const TOO_SMALL: NonZeroU64 = NonZeroU64::MIN.saturating_add(511);

// SAFETY: As for `Broken`'s other methods.
unsafe impl<B: Backend> VirtualMemory<B::Ptr> for Broken<B> {
    fn granularity(&self) -> NonZeroU64 {
        match self.inner_memory("granularity") {
            Ok(memory) if !has(Fault::GranularityTooSmall) => memory.granularity(),
            _ => TOO_SMALL,
        }
    }

    fn maps_twice(&self) -> bool {
        has(Fault::MapsTwiceLies) || self.inner_memory("maps_twice").is_ok_and(|memory| memory.maps_twice())
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<B::Ptr> {
        let alone = self.alone(Fault::ReservesAtOnceOverlap);
        if alone.is_none()
            && let Some(taken) = self.mappings.taken_over(len)
        {
            return Ok(taken);
        }
        let start = self.inner_memory("reserve")?.reserve(len)?;
        lock(&self.mappings.reserved).insert(start.trace_address(), (start, len));
        Ok(start)
    }

    unsafe fn release(&self, at: B::Ptr, len: NonZeroU64) {
        let reserved = lock(&self.mappings.reserved).remove(&at.trace_address());
        if let (Some(_), Ok(memory)) = (reserved, self.inner_memory("release")) {
            // SAFETY: The caller promises the same.
            unsafe { memory.release(at, len) };
        }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.inner_memory("create")?.create(len)
    }

    unsafe fn destroy(&self, pages: Pages) {
        lock(&self.mappings.mapped).remove(&pages.handle);
        if let Ok(memory) = self.inner_memory("destroy")
            && !has(Fault::DestroyLeaks)
        {
            // SAFETY: The caller promises the same.
            unsafe { memory.destroy(pages) };
        }
    }

    unsafe fn map(&self, at: B::Ptr, pages: &Pages) -> DriverResult<()> {
        let memory = self.inner_memory("map")?;
        let at = match planted() {
            Some(Fault::MapIgnoresTheOffset) => self.mappings.start(at),
            Some(Fault::MapsTwiceLies) => {
                let mut mapped = lock(&self.mappings.mapped);
                let times = mapped.entry(pages.handle).or_default();
                *times += 1;
                if *times > 1 {
                    let other = memory.create(pages.len)?;
                    // SAFETY: The caller promises the same. The new memory is mapped nowhere, and stays.
                    return unsafe { memory.map(at, &other) };
                }
                at
            }
            _ => at,
        };
        // SAFETY: The caller promises the same.
        unsafe { memory.map(at, pages) }
    }

    unsafe fn unmap(&self, at: B::Ptr, len: NonZeroU64) -> DriverResult<()> {
        if has(Fault::UnmapDoesNothing) {
            return Ok(());
        }
        let at = if has(Fault::UnmapIgnoresTheOffset) { self.mappings.start(at) } else { at };
        // SAFETY: The caller promises the same.
        unsafe { self.inner_memory("unmap")?.unmap(at, len) }
    }
}
