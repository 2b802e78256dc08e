//! Device memory, at addresses that the program itself cannot dereference.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::face::Face;

/// Above all addresses of programs, so an address alone shows whether it is a device's.
pub const FIRST_ADDRESS: u64 = 1 << 48;

/// The granularity of virtual memory, and the alignment of every allocation.
pub const GRANULARITY: u64 = 2 << 20;

/// An allocation of device memory.
#[derive(Debug)]
pub struct Allocation {
    /// The device whose memory it is.
    pub device: usize,
    /// The object of the face that it was allocated for.
    pub owner: Handle,
    /// Flags that the face stores with it.
    pub flags: u32,
    /// Its size, which need not be a whole number of pages.
    pub bytes: u64,
    /// Whether another process has allocated it.
    pub imported: bool,
    pub(crate) backing: Backing,
}

/// All allocations of device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    allocations: BTreeMap<u64, Allocation>,
    /// Freed ranges: address and bytes. Addresses are never reused, so an entry stays valid.
    freed: BTreeMap<u64, u64>,
    next_address: u64,
}

impl Default for DeviceMemory {
    fn default() -> Self {
        Self { allocations: BTreeMap::new(), freed: BTreeMap::new(), next_address: FIRST_ADDRESS }
    }
}

impl DeviceMemory {
    /// Reserves addresses that have never been used. Returns `None` if there are none left.
    pub(crate) fn take_addresses(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let address = self.next_address.checked_next_multiple_of(alignment.max(GRANULARITY))?;
        self.next_address = address.checked_add(bytes)?.checked_next_multiple_of(GRANULARITY)?;
        Some(address)
    }

    /// Like [`Self::take_addresses`], but at an odd multiple of the alignment.
    fn take_aligned(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let address = self.next_address.checked_next_multiple_of(alignment.checked_mul(2)?)?;
        let address = address.checked_add(alignment)?;
        self.next_address = address.checked_add(bytes)?.checked_next_multiple_of(GRANULARITY)?;
        Some(address)
    }

    /// Returns the allocation that starts exactly at an address.
    pub fn at(&self, address: u64) -> Option<&Allocation> {
        self.allocations.get(&address)
    }

    /// Returns the allocation that starts exactly at an address, for changes.
    pub fn at_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&address)
    }

    /// Returns the allocation that contains an address, and its start.
    pub fn containing(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.allocations.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((*start, allocation))
    }

    /// Returns the start addresses of an owner's allocations.
    pub fn of(&self, owner: Handle) -> Vec<u64> {
        let own = self.allocations.iter().filter(|(_, allocation)| allocation.owner == owner);
        own.map(|(address, _)| *address).collect()
    }

    /// Returns the number of live allocations and their total bytes.
    pub fn live(&self) -> (usize, u64) {
        (self.allocations.len(), self.allocations.values().map(|allocation| allocation.bytes).sum())
    }

    /// Describes an invalid address for a report.
    pub fn describe(&self, address: u64) -> String {
        match self.freed.range(..=address).next_back() {
            Some((start, bytes)) if address - start < *bytes => {
                format!("freed memory: {bytes} bytes that were at {start:#x}")
            }
            _ => "no live memory".to_owned(),
        }
    }
}

impl<F: Face> Engine<F> {
    /// Allocates memory of a device and charges its exact size. The address is a multiple of [`GRANULARITY`].
    pub fn allocate(&mut self, device: usize, bytes: u64, owner: Handle, flags: u32) -> Result<u64, Error> {
        self.allocate_where(device, bytes, owner, flags, |memory| memory.take_addresses(bytes, GRANULARITY))
    }

    /// Like [`Self::allocate`], but at an odd multiple of `alignment`, a power of two, so that no caller gets a larger
    /// alignment by luck.
    pub fn allocate_aligned(
        &mut self,
        device: usize,
        bytes: u64,
        alignment: u64,
        owner: Handle,
        flags: u32,
    ) -> Result<u64, Error> {
        if !alignment.is_power_of_two() {
            return Err(Error::NotAligned);
        }
        self.allocate_where(device, bytes, owner, flags, |memory| memory.take_aligned(bytes, alignment))
    }

    fn allocate_where(
        &mut self,
        device: usize,
        bytes: u64,
        owner: Handle,
        flags: u32,
        take_addresses: impl FnOnce(&mut DeviceMemory) -> Option<u64>,
    ) -> Result<u64, Error> {
        if bytes == 0 {
            return Err(Error::ZeroSize);
        }
        self.charge(device, bytes)?;
        let place = usize::try_from(bytes).ok().and_then(Backing::new);
        let place = place.and_then(|backing| Some((backing, take_addresses(&mut self.memory)?)));
        let Some((backing, address)) = place else {
            self.credit(device, bytes);
            return Err(Error::OutOfDeviceMemory);
        };
        let allocation = Allocation { device, owner, flags, bytes, imported: false, backing };
        self.memory.allocations.insert(address, allocation);
        Ok(address)
    }

    /// Adds memory of another process, which is charged there.
    pub(crate) fn add_imported(&mut self, device: usize, backing: Backing, owner: Handle) -> Result<u64, Error> {
        let bytes = backing.bytes() as u64;
        let address = self.memory.take_addresses(bytes, GRANULARITY).ok_or(Error::OutOfDeviceMemory)?;
        let allocation = Allocation { device, owner, flags: 0, bytes, imported: true, backing };
        self.memory.allocations.insert(address, allocation);
        Ok(address)
    }

    /// Frees an allocation immediately, even if it is still in use.
    pub fn free(&mut self, address: u64) -> Result<(), Error> {
        let allocation = self.memory.allocations.remove(&address).ok_or(Error::Unknown)?;
        if !allocation.imported {
            self.credit(allocation.device, allocation.bytes);
        }
        self.memory.freed.insert(address, allocation.bytes);
        Ok(())
    }
}
