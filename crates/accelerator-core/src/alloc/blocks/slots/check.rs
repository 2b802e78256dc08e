//! A check of the vacant slots.

use super::Slots;
use crate::alloc::blocks::State;
use crate::alloc::blocks::check::Slot;
use crate::alloc::blocks::visited::Visited;

impl Slots {
    /// Follows the links of the vacant slots.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(in crate::alloc::blocks) fn check(&self, visited: &mut Visited<Slot>) {
        let mut vacant = self.vacant;
        while let Some(id) = vacant {
            visited.visit(id, Slot::Vacant);
            vacant = self[id].below[0];
        }
        let none = &self.slots[0];
        assert_eq!((none.size, none.state), (0, State::Allocated), "what stands for no neighbour");
    }
}
