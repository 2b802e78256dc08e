//! Address space and memory, separately: bookkeeping only.
#![allow(unsafe_code)] // the trait is unsafe to implement

use std::num::NonZeroU64;

use accelerator_core::{DriverErrorKind, DriverResult, MIB, Pages, VirtualMemory};

use super::{Sim, SimPtr};
use crate::calls::{Call, failure};
use crate::controls::Controls;
use crate::mappings::{Mappings, PhysicalRange};

/// As on CUDA devices.
const GRANULARITY: NonZeroU64 = NonZeroU64::new(2 * MIB).unwrap();

/// The start of the first reservation, above all allocations.
const FIRST_RESERVATION: u64 = Sim::BASE + 0x4000_0000_0000;

/// Address space and memory, separately: the next to hand out, and those in use.
#[derive(Debug)]
pub(super) struct Pager {
    next_address: u64,
    next_handle: u64,
    mappings: Mappings<SimPtr>,
}

impl Pager {
    /// Returns the memory mapped at an address, from that address to the end of its mapping.
    pub(super) fn behind(&self, address: u64) -> Option<PhysicalRange> {
        self.mappings.at(address)
    }

    pub(super) fn new() -> Self {
        Self { next_address: FIRST_RESERVATION, next_handle: 1, mappings: Mappings::new() }
    }
}

// SAFETY: Neither the core nor this type dereferences addresses, and each reservation is handed out only once.
unsafe impl VirtualMemory<SimPtr> for Sim {
    fn granularity(&self) -> NonZeroU64 {
        GRANULARITY
    }

    fn maps_twice(&self) -> bool {
        self.maps_twice
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<SimPtr> {
        self.calls.count(Call::Reserve);
        whole_pages(Call::Reserve, len)?;
        let exhausted = failure(Call::Reserve, DriverErrorKind::OutOfMemory, "out of address space");
        if len.get() > self.largest_reservation {
            return Err(exhausted);
        }
        let pager = &mut self.memory().pager;
        let at = pager.next_address;
        pager.next_address = at.checked_add(len.get()).ok_or(exhausted)?;
        pager.mappings.reserve(SimPtr(at), len);
        Ok(SimPtr(at))
    }

    unsafe fn release(&self, at: SimPtr, len: NonZeroU64) {
        self.calls.count(Call::Release);
        let released = self.memory().pager.mappings.release(at, len);
        assert_eq!(released, Ok(()), "release of {len} bytes at {at:?}");
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.calls.count(Call::Create);
        whole_pages(Call::Create, len)?;
        self.admit(Call::Create, len)?;
        let mut memory = self.memory();
        memory.charge(Call::Create, len)?;
        let pages = Pages::new(memory.pager.next_handle, len);
        memory.pager.next_handle += 1;
        memory.pager.mappings.create(&pages);
        Ok(pages)
    }

    unsafe fn destroy(&self, pages: Pages) {
        self.calls.count(Call::Destroy);
        let mut memory = self.memory();
        let destroyed = memory.pager.mappings.destroy(&pages);
        assert_eq!(destroyed, Ok(()), "destroy of {pages:?}");
        memory.used -= pages.len.get();
    }

    unsafe fn map(&self, at: SimPtr, pages: &Pages) -> DriverResult<()> {
        self.calls.count(Call::Map);
        let mappings = &mut self.memory().pager.mappings;
        if !self.maps_twice && mappings.is_mapped(pages) {
            let twice = "the memory is mapped at another address";
            return Err(failure(Call::Map, DriverErrorKind::InvalidArgument, twice));
        }
        let mapped = mappings.map(at, pages, GRANULARITY);
        assert_eq!(mapped, Ok(()), "map of {pages:?} at {at:?}");
        Ok(())
    }

    unsafe fn unmap(&self, at: SimPtr, len: NonZeroU64) -> DriverResult<()> {
        self.calls.count(Call::Unmap);
        let unmapped = self.memory().pager.mappings.unmap(at, len);
        assert_eq!(unmapped, Ok(()), "unmap of {len} bytes at {at:?}");
        Ok(())
    }
}

fn whole_pages(call: Call, len: NonZeroU64) -> DriverResult<()> {
    let refused = failure(call, DriverErrorKind::InvalidArgument, "not a multiple of the granularity");
    len.get().is_multiple_of(GRANULARITY.get()).then_some(()).ok_or(refused)
}
