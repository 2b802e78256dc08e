//! Virtual memory: reserved addresses, physical memory, and mappings between them.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::device_memory::GRANULARITY;
use crate::engine::Engine;
use crate::error::Error;
use crate::face::Face;

/// What a device may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

#[derive(Debug)]
struct Reservation {
    bytes: u64,
    mappings: BTreeMap<u64, Mapping>,
}

/// A part of physical memory, mapped at reserved addresses.
#[derive(Debug)]
pub struct Mapping {
    /// Its size.
    pub bytes: u64,
    /// The handle of the physical memory.
    pub physical: u64,
    /// The offset in the physical memory.
    pub offset: u64,
    /// What each device may do; nothing at first.
    access: BTreeMap<usize, Access>,
}

impl Mapping {
    /// Returns what a device may do.
    pub fn access(&self, device: usize) -> Access {
        self.access.get(&device).copied().unwrap_or(Access::None)
    }

    pub(crate) fn permits(&self, device: usize, write: bool) -> bool {
        self.access(device) >= if write { Access::ReadWrite } else { Access::Read }
    }
}

/// Physical memory of a device. It lives as long as its handle or any mapping.
#[derive(Debug)]
pub struct Physical {
    /// The device whose memory it is.
    pub device: usize,
    pub(crate) backing: Backing,
    /// Whether the program still has its handle.
    held: bool,
    mappings: usize,
    /// Memory that is not charged to a device: it replaces memory that a mapping has lost, or is that of another
    /// process.
    scratch: bool,
}

impl Physical {
    /// Returns its size.
    pub fn bytes(&self) -> u64 {
        self.backing.bytes() as u64
    }

    /// Whether another process has made it.
    pub fn is_imported(&self) -> bool {
        self.scratch
    }

    /// Returns the number of its mappings.
    pub fn mappings(&self) -> usize {
        self.mappings
    }
}

/// All virtual memory.
#[derive(Debug)]
pub struct VirtualMemory {
    page: u64,
    reservations: BTreeMap<u64, Reservation>,
    physical: BTreeMap<u64, Physical>,
    last_handle: u64,
}

/// Checks that a size is a nonzero multiple of [`GRANULARITY`].
pub fn granular(bytes: u64) -> Result<(), Error> {
    whole_pages(bytes, GRANULARITY)
}

fn whole_pages(bytes: u64, page: u64) -> Result<(), Error> {
    match bytes {
        0 => Err(Error::ZeroSize),
        _ if bytes.is_multiple_of(page) => Ok(()),
        _ => Err(Error::NotAligned),
    }
}

impl VirtualMemory {
    /// Creates an empty state with this page size.
    pub(crate) fn new(page: u64) -> Self {
        Self { page, reservations: BTreeMap::new(), physical: BTreeMap::new(), last_handle: 0 }
    }

    /// Returns the mapping that contains an address, its start and its memory.
    pub fn containing(&self, address: u64) -> Option<(u64, &Mapping, &Physical)> {
        let (_, reservation) = self.reservations.range(..=address).next_back()?;
        let (start, mapping) = reservation.mappings.range(..=address).next_back()?;
        let physical = self.physical.get(&mapping.physical)?;
        (address - start < mapping.bytes).then_some((*start, mapping, physical))
    }

    /// Returns the start and the size of the reservation that contains an address.
    pub fn reserved(&self, address: u64) -> Option<(u64, u64)> {
        let (start, reservation) = self.reservations.range(..=address).next_back()?;
        (address - start < reservation.bytes).then_some((*start, reservation.bytes))
    }

    /// Returns physical memory whose handle the program still has.
    pub fn physical(&self, handle: u64) -> Option<&Physical> {
        self.physical.get(&handle).filter(|physical| physical.held)
    }

    /// As [`Self::physical`], for changes.
    pub(crate) fn physical_mut(&mut self, handle: u64) -> Option<&mut Physical> {
        self.physical.get_mut(&handle).filter(|physical| physical.held)
    }

    /// Returns the number of reservations, of physical handles that the program holds, and of mappings.
    pub fn live(&self) -> (usize, usize, usize) {
        let held = self.physical.values().filter(|physical| physical.held).count();
        let mappings = self.reservations.values().map(|reservation| reservation.mappings.len()).sum();
        (self.reservations.len(), held, mappings)
    }

    /// Returns the reservation that contains a whole range.
    fn reservation(&mut self, address: u64, bytes: u64) -> Result<&mut Reservation, Error> {
        let (start, reservation) = self.reservations.range_mut(..=address).next_back().ok_or(Error::Unknown)?;
        let end = address.checked_add(bytes).ok_or(Error::WrongRange)?;
        if end > start + reservation.bytes { Err(Error::WrongRange) } else { Ok(reservation) }
    }

    /// Returns the starts of the mappings that exactly fill a range.
    fn mapped(&mut self, address: u64, bytes: u64) -> Result<Vec<u64>, Error> {
        whole_pages(bytes, self.page)?;
        let reservation = self.reservation(address, bytes)?;
        let mut next = address;
        while next < address + bytes {
            next += reservation.mappings.get(&next).ok_or(Error::WrongRange)?.bytes;
        }
        if next > address + bytes {
            return Err(Error::WrongRange);
        }
        Ok(reservation.mappings.range(address..next).map(|(start, _)| *start).collect())
    }

    /// Frees a whole reservation with nothing mapped.
    pub fn free_addresses(&mut self, address: u64, bytes: u64) -> Result<(), Error> {
        let reservation = self.reservations.get(&address).ok_or(Error::Unknown)?;
        if reservation.bytes != bytes || !reservation.mappings.is_empty() {
            return Err(Error::WrongRange);
        }
        self.reservations.remove(&address);
        Ok(())
    }

    /// Maps a part of physical memory at reserved addresses that are not mapped yet. No device may touch it at first.
    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: u64) -> Result<(), Error> {
        whole_pages(bytes, self.page)?;
        let whole = self.physical(handle).ok_or(Error::Unknown)?.bytes();
        if !offset.is_multiple_of(self.page) || !address.is_multiple_of(self.page) {
            return Err(Error::NotAligned);
        }
        if offset.checked_add(bytes).is_none_or(|end| end > whole) {
            return Err(Error::WrongRange);
        }
        let mappings = &mut self.reservation(address, bytes)?.mappings;
        let before = mappings.range(..address + bytes).next_back();
        if before.is_some_and(|(start, mapping)| start + mapping.bytes > address) {
            return Err(Error::WrongRange);
        }
        mappings.insert(address, Mapping { bytes, physical: handle, offset, access: BTreeMap::new() });
        if let Some(physical) = self.physical.get_mut(&handle) {
            physical.mappings += 1;
        }
        Ok(())
    }

    /// Sets what a device may do with a range that whole mappings fill.
    pub fn set_access(&mut self, address: u64, bytes: u64, device: usize, access: Access) -> Result<(), Error> {
        for start in self.mapped(address, bytes)? {
            if let Some(mapping) = self.reservation(start, 1)?.mappings.get_mut(&start) {
                mapping.access.insert(device, access);
            }
        }
        Ok(())
    }
}

impl<F: Face> Engine<F> {
    /// Reserves addresses that have never been used, at a multiple of an alignment, or of [`GRANULARITY`] if that is 0.
    pub fn reserve_addresses(&mut self, bytes: u64, alignment: u64) -> Result<u64, Error> {
        whole_pages(bytes, F::PAGE)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Error::NotAligned);
        }
        let address = self.memory.take_addresses(bytes, alignment).ok_or(Error::OutOfDeviceMemory)?;
        let reservation = Reservation { bytes, mappings: BTreeMap::new() };
        self.virtual_memory.reservations.insert(address, reservation);
        Ok(address)
    }

    /// Creates physical memory of a device and returns its handle.
    pub fn create_physical(&mut self, device: usize, bytes: u64) -> Result<u64, Error> {
        whole_pages(bytes, F::PAGE)?;
        self.charge(device, bytes)?;
        let Some(backing) = usize::try_from(bytes).ok().and_then(Backing::new) else {
            self.credit(device, bytes);
            return Err(Error::OutOfDeviceMemory);
        };
        let memory = &mut self.virtual_memory;
        memory.last_handle += 1;
        let physical = Physical { device, backing, held: true, mappings: 0, scratch: false };
        memory.physical.insert(memory.last_handle, physical);
        Ok(memory.last_handle)
    }

    /// Adds physical memory of another process, which is charged there, and returns its handle.
    pub(crate) fn add_imported_physical(&mut self, device: usize, backing: Backing) -> u64 {
        let memory = &mut self.virtual_memory;
        memory.last_handle += 1;
        let physical = Physical { device, backing, held: true, mappings: 0, scratch: true };
        memory.physical.insert(memory.last_handle, physical);
        memory.last_handle
    }

    /// Removes physical memory from where it is mapped. The mappings then point to other bytes, which belong to no
    /// device.
    pub fn take_from_mappings(&mut self, handle: u64) -> Result<(), Error> {
        let memory = &mut self.virtual_memory;
        let mappings = memory.reservations.values_mut().flat_map(|own| own.mappings.values_mut());
        for mapping in mappings.filter(|mapping| mapping.physical == handle) {
            let physical = memory.physical.get_mut(&handle).ok_or(Error::Unknown)?;
            let backing = Backing::new(physical.backing.bytes()).ok_or(Error::OutOfDeviceMemory)?;
            physical.mappings -= 1;
            let device = physical.device;
            memory.last_handle += 1;
            mapping.physical = memory.last_handle;
            let scratch = Physical { device, backing, held: false, mappings: 1, scratch: true };
            memory.physical.insert(memory.last_handle, scratch);
        }
        Ok(())
    }

    /// Releases a handle of physical memory.
    pub fn release_physical(&mut self, handle: u64) -> Result<(), Error> {
        let physical = self.virtual_memory.physical.get_mut(&handle).filter(|physical| physical.held);
        physical.ok_or(Error::Unknown)?.held = false;
        self.drop_physical(handle);
        Ok(())
    }

    /// Unmaps a range that whole mappings fill. It happens immediately, even if the range is still in use.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Error> {
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

    fn drop_physical(&mut self, handle: u64) {
        let unused = |physical: &&mut Physical| !physical.held && physical.mappings == 0;
        let Some(physical) = self.virtual_memory.physical.get_mut(&handle).filter(unused) else { return };
        let (device, bytes) = (physical.device, physical.bytes());
        if !physical.scratch {
            self.credit(device, bytes);
        }
        self.virtual_memory.physical.remove(&handle);
    }
}
