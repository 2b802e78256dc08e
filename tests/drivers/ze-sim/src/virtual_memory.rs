//! Virtual memory: reserved addresses, physical memory, and mappings between them.

use level_zero_sys::ze_memory_access_attribute_t;
use sim_engine::{Access, GRANULARITY};

use crate::arguments::{Object, PhysicalHandle};
use crate::memory::SMALL_PAGE;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::{Driver, Handle};

/// A program's physical memory object.
pub(crate) struct Physical {
    pub(crate) context: Handle,
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    /// Its handle in the engine.
    pub(crate) number: u64,
}

/// Returns the page size of memory of a given size.
pub(crate) fn page_of(bytes: u64) -> u64 {
    if bytes < GRANULARITY { SMALL_PAGE } else { GRANULARITY }
}

/// Checks a size as every function does.
pub(crate) fn check_size(bytes: u64) -> Outcome {
    let fits = bytes > 0 && bytes.is_multiple_of(page_of(bytes));
    if fits { Ok(()) } else { Err(Refusal::UNSUPPORTED_SIZE) }
}

fn check_range(address: u64, bytes: u64) -> Outcome {
    check_size(bytes)?;
    let aligned = address.is_multiple_of(page_of(bytes));
    if aligned { Ok(()) } else { Err(Refusal::UNSUPPORTED_ALIGNMENT) }
}

pub(crate) fn access_of(attribute: ze_memory_access_attribute_t) -> Outcome<Access> {
    match attribute {
        ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE => Ok(Access::None),
        ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE => Ok(Access::ReadWrite),
        ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY => Ok(Access::Read),
        _ => Err(Refusal::INVALID_ENUMERATION),
    }
}

pub(crate) fn attribute_of(access: Access) -> ze_memory_access_attribute_t {
    match access {
        Access::None => ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE,
        Access::Read => ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
        Access::ReadWrite => ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE,
    }
}

impl Driver {
    /// Reserves addresses for a context, at a place of the driver's choice.
    pub(crate) fn reserve(&mut self, context: Handle, bytes: u64) -> Outcome<u64> {
        check_size(bytes)?;
        let address = self.engine.reserve_addresses(bytes, page_of(bytes))?;
        self.reservations.insert(address, context);
        Ok(address)
    }

    /// Returns the start and the size of a context's reservation that contains a range.
    fn reservation(&mut self, context: Handle, address: u64, bytes: u64) -> Outcome<(u64, u64)> {
        check_range(address, bytes)?;
        let found = self.engine.virtual_memory.reserved(address);
        let holds = found.filter(|(start, size)| address + bytes <= start + size);
        let Some((start, size)) = holds else {
            self.violation(format!(
                "{bytes} bytes at {address:#x} are used as reserved addresses, but are not reserved"
            ));
            return Err(Refusal::INVALID_ARGUMENT);
        };
        if self.reservations.get(&start) != Some(&context) {
            self.violation(format!("addresses at {address:#x} belong to another context"));
            return Err(Refusal::INVALID_ARGUMENT);
        }
        Ok((start, size))
    }

    /// Frees a whole reservation and unmaps whatever is mapped there.
    pub(crate) fn unreserve(&mut self, context: Handle, address: u64, bytes: u64) -> Outcome {
        let (start, size) = self.reservation(context, address, bytes)?;
        if (start, size) != (address, bytes) {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        self.check_memory_unused(address, bytes, "freed");
        for (start, bytes) in self.mappings_in(address, bytes) {
            self.engine.unmap(start, bytes)?;
        }
        self.engine.virtual_memory.free_addresses(address, bytes)?;
        self.reservations.remove(&address);
        Ok(())
    }

    /// Returns the start and size of each mapping in a range.
    fn mappings_in(&self, address: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut next = address;
        while next < address + bytes {
            match self.engine.virtual_memory.containing(next) {
                Some((start, mapping, _)) => {
                    found.push((start, mapping.bytes));
                    next = start + mapping.bytes;
                }
                None => next += SMALL_PAGE,
            }
        }
        found
    }

    pub(crate) fn physical(&mut self, physical: PhysicalHandle) -> Outcome<&mut Physical> {
        if !self.physical.contains_key(&physical.number) {
            return Err(self.unknown("physical memory", physical.number));
        }
        self.physical.get_mut(&physical.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    pub(crate) fn create_physical(&mut self, context: Handle, device: usize, bytes: u64) -> Outcome<PhysicalHandle> {
        check_size(bytes)?;
        let number = self.engine.create_physical(device, bytes)?;
        let handle = self.engine.new_handle();
        self.physical.insert(handle, Physical { context, device, bytes, number });
        Ok(Object::new(handle))
    }

    /// Destroys physical memory. It is a violation while it is mapped.
    pub(crate) fn destroy_physical(&mut self, context: Handle, physical: PhysicalHandle) -> Outcome {
        let own = self.physical(physical)?;
        let (owner, number) = (own.context, own.number);
        let mapped = self.engine.virtual_memory.physical(number).map_or(0, sim_engine::Physical::mappings);
        if mapped > 0 {
            let text = format!("physical memory {:#x} is destroyed while it is mapped", physical.number);
            self.violation(text);
        }
        if owner != context {
            self.violation(format!("physical memory {:#x} belongs to another context", physical.number));
        }
        self.physical.remove(&physical.number);
        Ok(self.engine.release_physical(number)?)
    }

    pub(crate) fn map(
        &mut self,
        context: Handle,
        (address, bytes): (u64, u64),
        physical: PhysicalHandle,
        offset: u64,
        access: Access,
    ) -> Outcome {
        self.reservation(context, address, bytes)?;
        let own = self.physical(physical)?;
        let (number, whole) = (own.number, own.bytes);
        if !offset.is_multiple_of(page_of(whole)) {
            return Err(Refusal::UNSUPPORTED_ALIGNMENT);
        }
        let is_mapped = self.engine.virtual_memory.physical(number).is_some_and(|own| own.mappings() > 0);
        if is_mapped && self.settings.has(Quirk::OneMapping) {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        if is_mapped && self.settings.has(Quirk::MovingMapping) {
            self.engine.take_from_mappings(number)?;
        }
        self.engine.virtual_memory.map(address, bytes, offset, number)?;
        self.permit(address, bytes, access)
    }

    pub(crate) fn unmap(&mut self, context: Handle, address: u64, bytes: u64) -> Outcome {
        self.reservation(context, address, bytes)?;
        self.check_memory_unused(address, bytes, "unmapped");
        Ok(self.engine.unmap(address, bytes)?)
    }

    pub(crate) fn set_access(&mut self, context: Handle, address: u64, bytes: u64, access: Access) -> Outcome {
        self.reservation(context, address, bytes)?;
        self.permit(address, bytes, access)
    }

    /// Sets the access to mappings for the device that owns the memory and for those that reach it.
    fn permit(&mut self, address: u64, bytes: u64, access: Access) -> Outcome {
        let owner = self.engine.virtual_memory.containing(address).map(|(_, _, physical)| physical.device);
        for device in 0..self.devices.len() {
            if self.settings.peers || Some(device) == owner {
                self.engine.virtual_memory.set_access(address, bytes, device, access)?;
            }
        }
        Ok(())
    }

    /// Returns the access at an address, and for how many bytes from there it applies.
    pub(crate) fn access_at(&mut self, context: Handle, address: u64, bytes: u64) -> Outcome<(Access, u64)> {
        self.reservation(context, address, bytes)?;
        let end = address + bytes;
        Ok(match self.engine.virtual_memory.containing(address) {
            Some((start, mapping, physical)) => {
                (mapping.access(physical.device), end.min(start + mapping.bytes) - address)
            }
            None => {
                let next = self.mappings_in(address, bytes).first().map_or(end, |(start, _)| *start);
                (Access::None, next - address)
            }
        })
    }
}
