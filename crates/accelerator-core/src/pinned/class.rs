//! Free blocks by size class, and what is counted of each class.

use std::num::NonZeroU64;
use std::sync::Mutex;

use super::memory::Block;
use crate::sync::lock;
use crate::types::Stat;

/// One for each power of two of bytes: blocks of that size, and smaller ones over half of it.
pub(super) struct Classes([Padded; u64::BITS as usize]);

/// Apart from its neighbours, since threads that ask for different sizes are not to meet in one cache line.
#[repr(align(64))]
#[derive(Default)]
struct Padded(Mutex<Class>);

/// The blocks of about one size.
#[derive(Default)]
pub(super) struct Class {
    /// The last one was freed last.
    pub(super) free: Vec<Block>,
    pub(super) active_requests: Stat,
    pub(super) active_bytes: Stat,
}

impl Classes {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Padded::default()))
    }

    /// The class of this size. PyTorch: `size_index`.
    pub(super) fn of(&self, size: NonZeroU64) -> &Mutex<Class> {
        let index = u64::BITS - (size.get() - 1).leading_zeros();
        &self.0[index.min(u64::BITS - 1) as usize].0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mutex<Class>> {
        self.0.iter().map(|class| &class.0)
    }

    /// The free block of at least this size that was freed last, which becomes active. PyTorch: `get_free_block`.
    pub(super) fn take(&self, size: NonZeroU64) -> Option<Block> {
        let mut class = lock(self.of(size));
        // Blocks of one class differ in size where the settings keep requests from being rounded.
        let place = class.free.iter().rposition(|block| block.size() >= size)?;
        let block = class.free.remove(place);
        class.activate(block.size());
        Some(block)
    }

    /// An active block becomes free.
    pub(super) fn put_back(&self, block: Block) {
        let mut class = lock(self.of(block.size()));
        class.deactivate(block.size());
        class.free.push(block);
    }
}

impl Class {
    pub(super) fn activate(&mut self, size: NonZeroU64) {
        self.active_requests.increase(1);
        self.active_bytes.increase(size.get());
    }

    pub(super) fn deactivate(&mut self, size: NonZeroU64) {
        self.active_requests.decrease(1);
        self.active_bytes.decrease(size.get());
    }

    pub(super) fn each_stat(&mut self, change: fn(&mut Stat)) {
        change(&mut self.active_requests);
        change(&mut self.active_bytes);
    }
}
