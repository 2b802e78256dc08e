//! Virtual memory: pages with real bytes, which may be mapped at several addresses.
#![allow(unsafe_code, reason = "the trait is unsafe to implement")]

use std::num::NonZeroU64;

use accelerator_core::{DriverResult, Pages, VirtualMemory};
use sim_engine::{Access, Face, GRANULARITY};

use super::shadow::Memory;
use super::state::Session;
use super::{Address, Adversary, refused};

const PAGE: NonZeroU64 = NonZeroU64::new(GRANULARITY).unwrap();

// SAFETY: The engine reserves each address once, and pages live as long as their handle or a mapping.
unsafe impl VirtualMemory<Address> for Adversary {
    fn granularity(&self) -> NonZeroU64 {
        PAGE
    }

    fn maps_twice(&self) -> bool {
        true
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<Address> {
        self.enter("reserve")?;
        let mut session = Session::new();
        let reserved = session.engine_mut().reserve_addresses(len.get(), 0);
        reserved.map(Address).map_err(|error| refused("reserve", error))
    }

    unsafe fn release(&self, at: Address, len: NonZeroU64) {
        let mut session = Session::new();
        let released = session.engine_mut().virtual_memory.free_addresses(at.0, len.get());
        if let Err(error) = released {
            self.note(&mut session, format!("release of {len} bytes at {:#x}: {error:?}", at.0));
        }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.failures.enter_for_memory("create")?;
        let mut session = Session::new();
        let created = session.engine_mut().create_physical(self.number, len.get());
        created.map(|handle| Pages::new(handle, len)).map_err(|error| refused("create", error))
    }

    unsafe fn destroy(&self, pages: Pages) {
        let mut session = Session::new();
        let mappings = session.engine().virtual_memory.physical(pages.handle).map(sim_engine::Physical::mappings);
        session.shadows[self.number].forget(Memory::Pages(pages.handle));
        if mappings != Some(0) || session.engine_mut().release_physical(pages.handle).is_err() {
            self.note(&mut session, format!("destroy of {pages:?}, which has {mappings:?} mappings"));
        }
    }

    unsafe fn map(&self, at: Address, pages: &Pages) -> DriverResult<()> {
        self.enter("map")?;
        let (mut session, len) = (Session::new(), pages.len.get());
        let memory = &mut session.engine_mut().virtual_memory;
        let mapped = memory
            .map(at.0, len, 0, pages.handle)
            .and_then(|()| memory.set_access(at.0, len, self.number, Access::ReadWrite));
        if let Err(error) = mapped {
            self.note(&mut session, format!("map of {pages:?} at {:#x}: {error:?}", at.0));
        }
        mapped.map_err(|error| refused("map", error))
    }

    unsafe fn unmap(&self, at: Address, len: NonZeroU64) -> DriverResult<()> {
        self.enter("unmap")?;
        let mut session = Session::new();
        session.shadows[self.number].unmap(&(at.0..at.0 + len.get()));
        let unmapped = session.engine_mut().unmap(at.0, len.get());
        if let Err(error) = unmapped {
            self.note(&mut session, format!("unmap of {len} bytes at {:#x}: {error:?}", at.0));
        }
        unmapped.map_err(|error| refused("unmap", error))
    }
}

impl Adversary {
    /// Notes a call that breaks the contract.
    fn note(&self, session: &mut Session, what: String) {
        session.shadows[self.number].found.push(what);
    }
}
