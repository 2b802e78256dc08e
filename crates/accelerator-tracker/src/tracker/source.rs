use accelerator::memory::DeviceMemory;
use accelerator::{Accelerator, Backend, Device, Result, Statistics};

/// The memory that a tracker observes.
pub(super) trait Source: Send + Sync {
    fn device(&self) -> Device;
    fn total_memory(&self) -> u64;
    fn statistics(&self) -> Statistics;
    fn empty_cache(&self) -> Result<()>;

    /// Returns how often the allocator released cached memory and retried since the process started.
    fn retries(&self) -> u64 {
        self.statistics().num_alloc_retries.unsigned_abs() // never negative
    }
}

impl Source for DeviceMemory {
    fn device(&self) -> Device {
        Self::device(self)
    }

    fn total_memory(&self) -> u64 {
        self.total()
    }

    fn statistics(&self) -> Statistics {
        Self::statistics(self)
    }

    fn empty_cache(&self) -> Result<()> {
        Self::empty_cache(self)
    }
}

impl<B: Backend> Source for &'static Accelerator<B> {
    fn device(&self) -> Device {
        Accelerator::device(self)
    }

    fn total_memory(&self) -> u64 {
        self.properties().total_memory
    }

    fn statistics(&self) -> Statistics {
        self.allocator().statistics()
    }

    fn empty_cache(&self) -> Result<()> {
        self.allocator().empty_cache()
    }
}
