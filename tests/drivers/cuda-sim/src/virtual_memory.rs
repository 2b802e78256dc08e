//! Virtual memory: reserved addresses, physical memory, and mappings of one to the other.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::code::{Code, Outcome};
use crate::device_memory::GRANULARITY;
use crate::state::Driver;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: u32 = 3;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const ON_DEVICE: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: u32 = 1;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    /// `CUmemLocationType`
    pub kind: u32,
    /// The device.
    pub id: i32,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// `CUmemAllocationType`
    pub kind: u32,
    /// `CUmemAllocationHandleType`
    pub handle_types: u32,
    /// Where the memory lies.
    pub location: Location,
    /// Not looked at.
    pub windows: usize,
    /// Not looked at.
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Whose access it is.
    pub location: Location,
    /// `CUmemAccess_flags`
    pub flags: u32,
}

struct Reservation {
    bytes: u64,
    mappings: BTreeMap<u64, Mapping>,
}

pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) physical: u64,
    /// What each device may do: `CUmemAccess_flags`.
    access: BTreeMap<usize, u32>,
}

impl Mapping {
    pub(crate) fn permits(&self, device: usize, write: bool) -> bool {
        let wanted = if write { READ_WRITE } else { 1 };
        self.access.get(&device).is_some_and(|flags| flags & wanted == wanted)
    }
}

pub(crate) struct Physical {
    pub(crate) device: usize,
    pub(crate) backing: Backing,
    /// The program has not given up its handle.
    held: bool,
    mappings: usize,
}

#[derive(Default)]
pub(crate) struct VirtualMemory {
    reservations: BTreeMap<u64, Reservation>,
    physical: BTreeMap<u64, Physical>,
    last_handle: u64,
}

fn granular(bytes: u64) -> Outcome {
    if bytes > 0 && bytes.is_multiple_of(GRANULARITY) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

impl VirtualMemory {
    /// The mapping that holds an address, where it starts, and its memory.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, &Mapping, &Physical)> {
        let (_, reservation) = self.reservations.range(..=address).next_back()?;
        let (start, mapping) = reservation.mappings.range(..=address).next_back()?;
        let physical = self.physical.get(&mapping.physical)?;
        (address - start < mapping.bytes).then_some((*start, mapping, physical))
    }

    /// Reservations, physical handles that the program holds, mappings.
    pub(crate) fn live(&self) -> (usize, usize, usize) {
        let held = self.physical.values().filter(|physical| physical.held).count();
        let mappings = self.reservations.values().map(|reservation| reservation.mappings.len()).sum();
        (self.reservations.len(), held, mappings)
    }

    /// The reservation that holds a whole range.
    fn reservation(&mut self, address: u64, bytes: u64) -> Outcome<&mut Reservation> {
        let (start, reservation) =
            self.reservations.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        if end > start + reservation.bytes { Err(Code::INVALID_VALUE) } else { Ok(reservation) }
    }

    /// The starts of the mappings that fill a range without a gap and without reaching out of it.
    fn mapped(&mut self, address: u64, bytes: u64) -> Outcome<Vec<u64>> {
        granular(bytes)?;
        let reservation = self.reservation(address, bytes)?;
        let mut next = address;
        while next < address + bytes {
            next += reservation.mappings.get(&next).ok_or(Code::INVALID_VALUE)?.bytes;
        }
        if next > address + bytes {
            return Err(Code::INVALID_VALUE);
        }
        Ok(reservation.mappings.range(address..next).map(|(start, _)| *start).collect())
    }

    pub(crate) fn free_addresses(&mut self, address: u64, bytes: u64) -> Outcome {
        let reservation = self.reservations.get(&address).ok_or(Code::INVALID_VALUE)?;
        if reservation.bytes != bytes || !reservation.mappings.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        self.reservations.remove(&address);
        Ok(())
    }

    pub(crate) fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: u64) -> Outcome {
        granular(bytes)?;
        let physical = self.physical.get(&handle).filter(|physical| physical.held);
        let whole = physical.ok_or(Code::INVALID_VALUE)?.backing.bytes() as u64;
        let mappings = &mut self.reservation(address, bytes)?.mappings;
        let before = mappings.range(..address + bytes).next_back();
        let is_free = before.is_none_or(|(start, mapping)| start + mapping.bytes <= address);
        if offset != 0 || bytes != whole || !address.is_multiple_of(GRANULARITY) || !is_free {
            return Err(Code::INVALID_VALUE);
        }
        mappings.insert(address, Mapping { bytes, physical: handle, access: BTreeMap::new() });
        if let Some(physical) = self.physical.get_mut(&handle) {
            physical.mappings += 1;
        }
        Ok(())
    }
}

impl Driver {
    pub(crate) fn reserve_addresses(&mut self, bytes: u64, alignment: u64) -> Outcome<u64> {
        granular(bytes)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Code::INVALID_VALUE);
        }
        let address = self.memory.take_addresses(bytes, alignment).ok_or(Code::OUT_OF_MEMORY)?;
        let reservation = Reservation { bytes, mappings: BTreeMap::new() };
        self.virtual_memory.reservations.insert(address, reservation);
        Ok(address)
    }

    pub(crate) fn create_physical(&mut self, bytes: u64, properties: Properties) -> Outcome<u64> {
        granular(bytes)?;
        let device = self.check_properties(properties)?;
        self.charge(device, bytes)?;
        let Some(backing) = usize::try_from(bytes).ok().and_then(Backing::new) else {
            self.devices[device].used -= bytes;
            return Err(Code::OUT_OF_MEMORY);
        };
        let memory = &mut self.virtual_memory;
        memory.last_handle += 1;
        memory.physical.insert(memory.last_handle, Physical { device, backing, held: true, mappings: 0 });
        Ok(memory.last_handle)
    }

    /// The device that properties ask for.
    pub(crate) fn check_properties(&self, properties: Properties) -> Outcome<usize> {
        if properties.kind != PINNED || properties.location.kind != ON_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        self.device(properties.location.id)
    }

    pub(crate) fn release_physical(&mut self, handle: u64) -> Outcome {
        let physical = self.virtual_memory.physical.get_mut(&handle).filter(|physical| physical.held);
        physical.ok_or(Code::INVALID_VALUE)?.held = false;
        self.drop_physical(handle);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Outcome {
        for start in self.virtual_memory.mapped(address, bytes)? {
            let reservation = self.virtual_memory.reservation(start, 1)?;
            let Some(mapping) = reservation.mappings.remove(&start) else { continue };
            if let Some(physical) = self.virtual_memory.physical.get_mut(&mapping.physical) {
                physical.mappings -= 1;
            }
            self.drop_physical(mapping.physical);
        }
        Ok(())
    }

    /// Physical memory lives as long as its handle or a mapping.
    fn drop_physical(&mut self, handle: u64) {
        let unused = |physical: &&mut Physical| !physical.held && physical.mappings == 0;
        if let Some(physical) = self.virtual_memory.physical.get_mut(&handle).filter(unused) {
            self.devices[physical.device].used -= physical.backing.bytes() as u64;
            self.virtual_memory.physical.remove(&handle);
        }
    }

    pub(crate) fn set_access(&mut self, address: u64, bytes: u64, access: Access) -> Outcome {
        let device = self.device(access.location.id)?;
        if access.location.kind != ON_DEVICE || !matches!(access.flags, 0 | 1 | READ_WRITE) {
            return Err(Code::INVALID_VALUE);
        }
        for start in self.virtual_memory.mapped(address, bytes)? {
            let reservation = self.virtual_memory.reservation(start, 1)?;
            if let Some(mapping) = reservation.mappings.get_mut(&start) {
                mapping.access.insert(device, access.flags);
            }
        }
        Ok(())
    }
}
