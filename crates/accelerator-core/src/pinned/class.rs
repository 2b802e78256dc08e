//! Free blocks by size class, and the statistics of each class.

use std::num::NonZeroU64;

use super::memory::Block;
use crate::sync::primitives::{IS_MODEL, Mutex, lock};
use crate::types::Stat;

/// One class for each power of two of bytes: its blocks have at most that size, and more than half of it.
pub(super) struct Classes([Padded; COUNT]);

/// In a model, one for all sizes.
const COUNT: usize = if IS_MODEL { 1 } else { u64::BITS as usize };

/// Keeps classes on separate cache lines, so that threads that request different sizes do not contend.
#[repr(align(64))]
#[derive(Default)]
struct Padded(Mutex<Class>);

/// The blocks of one size class.
#[derive(Default)]
pub(super) struct Class {
    /// The last element was freed last.
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
        &self.0[(index as usize).min(COUNT - 1)].0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mutex<Class>> {
        self.0.iter().map(|class| &class.0)
    }

    /// Takes the free block of at least this size that was freed last. It becomes active. PyTorch: `get_free_block`.
    pub(super) fn take(&self, size: NonZeroU64) -> Option<Block> {
        let mut class = lock(self.of(size));
        // Blocks of one class differ in size if the settings limit the rounding of requests.
        let place = class.free.iter().rposition(|block| block.size() >= size)?;
        let block = class.free.remove(place);
        class.activate(block.size());
        Some(block)
    }

    /// Makes an active block free.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_ends_at_a_power_of_two() {
        let classes = Classes::new();
        for size in 1..5000 {
            let number = (0..).find(|number| 1 << number >= size).unwrap();
            let class = classes.of(NonZeroU64::new(size).unwrap());
            assert!(std::ptr::eq(class, &raw const classes.0[number.min(COUNT - 1)].0), "{size}");
        }
        assert!(std::ptr::eq(classes.of(NonZeroU64::MAX), &raw const classes.0[COUNT - 1].0));
    }
}
