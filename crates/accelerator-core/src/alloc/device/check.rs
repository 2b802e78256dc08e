//! A check of the whole allocator, in debug builds. Tests call it after every operation.

use std::collections::BTreeMap;

use super::DeviceAllocator;

impl DeviceAllocator {
    /// Checks all arenas, and that each pending block waits for the uses that are queued for it. No other thread may
    /// use the allocator meanwhile.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self) {
        let mut queued: BTreeMap<_, u32> = BTreeMap::new();
        for used in self.pending.uses() {
            *queued.entry((used.arena, used.block)).or_default() += 1;
        }
        let pending = self.arenas().hold_all().check();
        assert_eq!(queued, pending, "the queued uses, and what pending blocks wait for");
    }
}
