//! Host memory that devices see at its address in this process: pinned, or shared with a device.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::engine::Handle;
use crate::error::Error;

/// A block of it.
#[derive(Debug)]
pub struct Block {
    /// The object of the face that it was allocated for.
    pub owner: Handle,
    /// The device that shares it; `None` if it belongs to the host alone.
    pub device: Option<usize>,
    /// Flags that the face stores with it.
    pub flags: u32,
    pub(crate) backing: Backing,
}

impl Block {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.backing.bytes() as u64
    }
}

/// All host memory that devices see.
#[derive(Debug)]
pub struct HostMemory {
    /// By address in this process, which is also the address that devices use.
    blocks: BTreeMap<u64, Block>,
    capacity: u64,
    used: u64,
}

impl HostMemory {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { blocks: BTreeMap::new(), capacity, used: 0 }
    }

    /// Returns the block that starts exactly at an address.
    pub fn at(&self, address: u64) -> Option<&Block> {
        self.blocks.get(&address)
    }

    /// Returns the block that contains an address, and its start.
    pub fn containing(&self, address: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes()).then_some((*start, block))
    }

    /// Returns the start addresses of an owner's blocks.
    pub fn of(&self, owner: Handle) -> Vec<u64> {
        self.blocks.iter().filter(|(_, block)| block.owner == owner).map(|(address, _)| *address).collect()
    }

    /// Allocates page-aligned memory.
    pub fn allocate(&mut self, bytes: usize, owner: Handle, device: Option<usize>, flags: u32) -> Result<u64, Error> {
        self.allocate_backed(owner, device, flags, bytes, Backing::new)
    }

    /// Like [`Self::allocate`], but at an odd multiple of an alignment, which is a power of two and at least a page.
    pub fn allocate_aligned(
        &mut self,
        bytes: usize,
        alignment: usize,
        owner: Handle,
        device: Option<usize>,
        flags: u32,
    ) -> Result<u64, Error> {
        if !alignment.is_power_of_two() {
            return Err(Error::NotAligned);
        }
        let make = |bytes| Backing::aligned(bytes, alignment);
        self.allocate_backed(owner, device, flags, bytes, make)
    }

    fn allocate_backed(
        &mut self,
        owner: Handle,
        device: Option<usize>,
        flags: u32,
        bytes: usize,
        make: impl FnOnce(usize) -> Option<Backing>,
    ) -> Result<u64, Error> {
        if bytes == 0 {
            return Err(Error::ZeroSize);
        }
        if bytes as u64 > self.capacity - self.used {
            return Err(Error::OutOfHostMemory);
        }
        let backing = make(bytes).ok_or(Error::OutOfHostMemory)?;
        let address = backing.at(0) as u64;
        self.used += bytes as u64;
        self.blocks.insert(address, Block { owner, device, flags, backing });
        Ok(address)
    }

    /// Frees a block immediately, even if it is still in use, and returns its size. Whatever is mapped at its address
    /// afterwards belongs to the program.
    pub fn free(&mut self, address: u64) -> Result<u64, Error> {
        let bytes = self.blocks.remove(&address).ok_or(Error::Unknown)?.bytes();
        self.used -= bytes;
        Ok(bytes)
    }

    /// Returns the number of live blocks and their total bytes.
    pub fn live(&self) -> (usize, u64) {
        (self.blocks.len(), self.used)
    }
}
