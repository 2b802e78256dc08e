//! Device memory with addresses of its own, which the program itself cannot follow.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::face::Face;

/// Above all addresses of programs, so that an address tells whose it is.
pub const FIRST_ADDRESS: u64 = 1 << 48;

/// What virtual memory comes in, and what addresses of allocations are multiples of.
pub const GRANULARITY: u64 = 2 << 20;

/// Memory of a device.
#[derive(Debug)]
pub struct Allocation {
    /// Whose memory it is.
    pub device: usize,
    /// The object of the face that it was allocated for.
    pub owner: Handle,
    /// What the face keeps with it.
    pub flags: u32,
    /// Its size, which need not be that of whole pages.
    pub bytes: u64,
    pub(crate) backing: Backing,
}

/// All allocations of device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    allocations: BTreeMap<u64, Allocation>,
    /// What was freed: address and bytes. No address is given out twice, so this stays true.
    freed: BTreeMap<u64, u64>,
    next_address: u64,
}

impl Default for DeviceMemory {
    fn default() -> Self {
        Self { allocations: BTreeMap::new(), freed: BTreeMap::new(), next_address: FIRST_ADDRESS }
    }
}

impl DeviceMemory {
    /// Addresses that nobody had before; `None`: there are none left.
    pub(crate) fn take_addresses(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let address = self.next_address.checked_next_multiple_of(alignment.max(GRANULARITY))?;
        self.next_address = address.checked_add(bytes)?.checked_next_multiple_of(GRANULARITY)?;
        Some(address)
    }

    /// The same, but at a multiple of the alignment that is none of twice as much.
    fn take_aligned(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let address = self.next_address.checked_next_multiple_of(alignment.checked_mul(2)?)?;
        let address = address.checked_add(alignment)?;
        self.next_address = address.checked_add(bytes)?.checked_next_multiple_of(GRANULARITY)?;
        Some(address)
    }

    /// The allocation that starts exactly there.
    pub fn at(&self, address: u64) -> Option<&Allocation> {
        self.allocations.get(&address)
    }

    /// The same, to change.
    pub fn at_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&address)
    }

    /// The allocation that holds an address, and where it starts.
    pub fn containing(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.allocations.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((*start, allocation))
    }

    /// Where the allocations of an owner start.
    pub fn of(&self, owner: Handle) -> Vec<u64> {
        let own = self.allocations.iter().filter(|(_, allocation)| allocation.owner == owner);
        own.map(|(address, _)| *address).collect()
    }

    /// How many allocations are live, and their bytes.
    pub fn live(&self) -> (usize, u64) {
        (self.allocations.len(), self.allocations.values().map(|allocation| allocation.bytes).sum())
    }

    /// What lies at an address that cannot be used, for a report.
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
    /// Memory of a device, charged its exact size. Its address is a multiple of [`GRANULARITY`].
    pub fn allocate(&mut self, device: usize, bytes: u64, owner: Handle, flags: u32) -> Result<u64, Error> {
        self.allocate_where(device, bytes, owner, flags, |memory| memory.take_addresses(bytes, GRANULARITY))
    }

    /// The same at a multiple of an alignment, a power of two, that is none of twice as much: nobody gets
    /// more than he asked for by luck.
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
        let allocation = Allocation { device, owner, flags, bytes, backing };
        self.memory.allocations.insert(address, allocation);
        Ok(address)
    }

    /// Takes an allocation away, at once, whoever still uses it.
    pub fn free(&mut self, address: u64) -> Result<(), Error> {
        let allocation = self.memory.allocations.remove(&address).ok_or(Error::Unknown)?;
        self.credit(allocation.device, allocation.bytes);
        self.memory.freed.insert(address, allocation.bytes);
        Ok(())
    }
}
