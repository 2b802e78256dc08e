//! Device memory with addresses of its own, which the program itself cannot follow.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};

/// Above all addresses of programs, so that an address tells whose it is.
pub(crate) const FIRST_ADDRESS: u64 = 1 << 48;

/// What virtual memory comes in, and what addresses of allocations are multiples of.
pub(crate) const GRANULARITY: u64 = 2 << 20;

pub(crate) struct Allocation {
    pub(crate) device: usize,
    pub(crate) context: Handle,
    pub(crate) bytes: u64,
    pub(crate) backing: Backing,
    /// Made by `cuMemAllocAsync`, and not yet given to `cuMemFreeAsync`.
    pub(crate) stream_ordered: bool,
}

pub(crate) struct DeviceMemory {
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

    /// The allocation that starts exactly there.
    pub(crate) fn allocation(&mut self, address: u64) -> Outcome<&mut Allocation> {
        self.allocations.get_mut(&address).ok_or(Code::INVALID_VALUE)
    }

    /// The allocation that holds an address, and where it starts.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.allocations.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((*start, allocation))
    }

    pub(crate) fn allocations_of(&self, context: Handle) -> Vec<u64> {
        let own = self.allocations.iter().filter(|(_, allocation)| allocation.context == context);
        own.map(|(address, _)| *address).collect()
    }

    /// How many allocations are live, and their bytes.
    pub(crate) fn live(&self) -> (usize, u64) {
        (self.allocations.len(), self.allocations.values().map(|allocation| allocation.bytes).sum())
    }

    /// What lies at an address that cannot be used, for a report.
    pub(crate) fn describe(&self, address: u64) -> String {
        match self.freed.range(..=address).next_back() {
            Some((start, bytes)) if address - start < *bytes => {
                format!("freed memory: {bytes} bytes that were at {start:#x}")
            }
            _ => "no live memory".to_owned(),
        }
    }
}

impl Driver {
    pub(crate) fn allocate(&mut self, context: Handle, bytes: u64, stream_ordered: bool) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = self.context(context)?.device;
        self.charge(device, bytes)?;
        let place = usize::try_from(bytes).ok().and_then(Backing::new);
        let place =
            place.and_then(|backing| Some((backing, self.memory.take_addresses(bytes, GRANULARITY)?)));
        let Some((backing, address)) = place else {
            self.devices[device].used -= bytes;
            return Err(Code::OUT_OF_MEMORY);
        };
        let allocation = Allocation { device, context, bytes, backing, stream_ordered };
        self.memory.allocations.insert(address, allocation);
        Ok(address)
    }

    /// Takes an allocation away, at once.
    pub(crate) fn release_memory(&mut self, address: u64) {
        if let Some(allocation) = self.memory.allocations.remove(&address) {
            self.devices[allocation.device].used -= allocation.bytes;
            self.memory.freed.insert(address, allocation.bytes);
        }
    }
}
