//! A check of the vacant slots of a slab.

use super::{Id, Slab};

impl<I: Id, T> Slab<I, T> {
    /// Returns for each slot whether it is vacant.
    ///
    /// # Panics
    /// If a vacant number is of no slot, or vacant twice.
    pub(in crate::alloc::blocks) fn check(&self) -> Vec<bool> {
        let mut vacant = vec![false; self.slots.len()];
        for id in &self.vacant {
            let index = id.index();
            assert!(index < vacant.len(), "vacant slot {index} of {}", vacant.len());
            assert!(!std::mem::replace(&mut vacant[index], true), "slot {index} is vacant twice");
        }
        vacant
    }
}
