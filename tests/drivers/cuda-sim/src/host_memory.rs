//! Pinned host memory.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::code::{Code, Outcome};
use crate::state::Driver;
use crate::work::Work;

struct Block {
    backing: Backing,
    /// Those of `cuMemHostAlloc`.
    flags: u32,
}

pub(crate) struct HostMemory {
    /// By address in this process, which is its address for devices too.
    blocks: BTreeMap<u64, Block>,
    capacity: u64,
    used: u64,
}

impl HostMemory {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { blocks: BTreeMap::new(), capacity, used: 0 }
    }

    fn block(&self, address: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.backing.bytes() as u64).then_some((*start, block))
    }

    /// The memory that holds an address, and where it starts.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, &Backing)> {
        self.block(address).map(|(start, block)| (start, &block.backing))
    }

    /// What the memory that holds an address was allocated with.
    pub(crate) fn flags(&self, address: u64) -> Option<u32> {
        self.block(address).map(|(_, block)| block.flags)
    }

    pub(crate) fn allocate(&mut self, bytes: usize, flags: u32) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if bytes as u64 > self.capacity - self.used {
            return Err(Code::OUT_OF_MEMORY);
        }
        let backing = Backing::new(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        let address = backing.at(0) as u64;
        self.used += bytes as u64;
        self.blocks.insert(address, Block { backing, flags });
        Ok(address)
    }

    /// How many blocks are live, and their bytes.
    pub(crate) fn live(&self) -> (usize, u64) {
        (self.blocks.len(), self.used)
    }
}

impl Driver {
    /// The real driver waits until the device is done with the memory. This one reports who relies on that,
    /// and lets the work that still needs the memory fall away.
    pub(crate) fn free_pinned(&mut self, address: u64) -> Outcome {
        let Block { backing, .. } = self.host.blocks.remove(&address).ok_or(Code::INVALID_VALUE)?;
        let bytes = backing.bytes() as u64;
        self.host.used -= bytes;
        let touches = |(start, length): &(u64, u64)| {
            *start < address + bytes && address < start.saturating_add(*length)
        };
        for operation in self.streams.values_mut().flat_map(|stream| &mut stream.queue) {
            if operation.work.ranges().iter().any(touches) {
                operation.work = Work::Nothing;
                let text = format!(
                    "pinned memory at {address:#x} ({bytes} bytes) is freed while work still uses it"
                );
                self.violations.push(text);
            }
        }
        Ok(())
    }
}
