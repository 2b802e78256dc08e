//! A check of the allocator's data structures, in debug builds.

use super::CachingAllocator;
use crate::backend::Backend;

impl<B: Backend> CachingAllocator<B> {
    /// Walks all blocks, lists and queues, and compares them with each other and with the counters. There is this
    /// function in debug builds only, for tests of this crate. No other thread may use the allocator meanwhile.
    ///
    /// # Panics
    /// If anything is wrong.
    #[doc(hidden)]
    pub fn check(&self) {
        self.device.check();
    }
}
