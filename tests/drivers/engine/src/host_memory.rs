//! Host memory that devices see at the address that it has in this process: pinned, or shared with a device.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::engine::Handle;
use crate::error::Error;

/// A piece of it.
#[derive(Debug)]
pub struct Block {
    /// The object of the face that it was allocated for.
    pub owner: Handle,
    /// The device with which it is shared; `None`: it is the host's.
    pub device: Option<usize>,
    /// What the face keeps with it.
    pub flags: u32,
    pub(crate) backing: Backing,
}

impl Block {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.backing.bytes() as u64
    }
}

/// All of it.
#[derive(Debug)]
pub struct HostMemory {
    /// By address in this process, which is its address for devices too.
    blocks: BTreeMap<u64, Block>,
    capacity: u64,
    used: u64,
}

impl HostMemory {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { blocks: BTreeMap::new(), capacity, used: 0 }
    }

    /// The block that starts exactly there.
    pub fn at(&self, address: u64) -> Option<&Block> {
        self.blocks.get(&address)
    }

    /// The block that holds an address, and where it starts.
    pub fn containing(&self, address: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes()).then_some((*start, block))
    }

    /// Where the blocks of an owner start.
    pub fn of(&self, owner: Handle) -> Vec<u64> {
        self.blocks.iter().filter(|(_, block)| block.owner == owner).map(|(address, _)| *address).collect()
    }

    /// Memory at the beginning of a page.
    pub fn allocate(
        &mut self,
        bytes: usize,
        owner: Handle,
        device: Option<usize>,
        flags: u32,
    ) -> Result<u64, Error> {
        self.allocate_backed(owner, device, flags, bytes, Backing::new)
    }

    /// The same at a multiple of an alignment, a power of two of at least a page, that is none of twice as
    /// much.
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

    /// Takes a block away, at once, whoever still uses it: what lies there then, if anything, is the
    /// program's own. Gives its size.
    pub fn free(&mut self, address: u64) -> Result<u64, Error> {
        let bytes = self.blocks.remove(&address).ok_or(Error::Unknown)?.bytes();
        self.used -= bytes;
        Ok(bytes)
    }

    /// How many blocks are live, and their bytes.
    pub fn live(&self) -> (usize, u64) {
        (self.blocks.len(), self.used)
    }
}
