use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, History, HookId, HostStatistics, OutOfMemory, Recording, Result,
    Snapshot, Statistics,
};
use enum_dispatch::enum_dispatch;

/// The allocators of a device.
#[enum_dispatch]
pub(crate) trait AllocatorDispatch {
    fn is_used(&self) -> bool;
    fn statistics(&self) -> Statistics;
    fn reset_peak_statistics(&self);
    fn reset_accumulated_statistics(&self);
    fn empty_cache(&self) -> Result<()>;
    fn snapshot(&self) -> Snapshot;
    fn record_history(&self, recording: Option<Recording>);
    fn history(&self) -> History;
    fn memory_fraction(&self) -> f64;
    fn set_memory_fraction(&self, fraction: f64) -> Result<()>;
    fn set_config(&self, config: AllocatorConfig);
    fn add_free_memory_callback(&self, callback: Box<dyn Fn() -> bool + Send + Sync>) -> HookId;
    fn add_out_of_memory_observer(&self, observer: Box<dyn Fn(&OutOfMemory) + Send + Sync>) -> HookId;
    fn remove_hook(&self, id: HookId) -> bool;
    fn is_host_used(&self) -> bool;
    fn host_statistics(&self) -> HostStatistics;
    fn reset_peak_host_statistics(&self);
    fn reset_accumulated_host_statistics(&self);
    fn empty_host_cache(&self) -> Result<()>;
}

impl<B: Backend> AllocatorDispatch for &'static Accelerator<B> {
    fn is_used(&self) -> bool {
        self.allocator().is_used()
    }

    fn statistics(&self) -> Statistics {
        self.allocator().statistics()
    }

    fn reset_peak_statistics(&self) {
        self.allocator().reset_peak_statistics();
    }

    fn reset_accumulated_statistics(&self) {
        self.allocator().reset_accumulated_statistics();
    }

    fn empty_cache(&self) -> Result<()> {
        self.allocator().empty_cache()
    }

    fn snapshot(&self) -> Snapshot {
        self.allocator().snapshot()
    }

    fn record_history(&self, recording: Option<Recording>) {
        self.allocator().record_history(recording);
    }

    fn history(&self) -> History {
        self.allocator().history()
    }

    fn memory_fraction(&self) -> f64 {
        self.allocator().memory_fraction()
    }

    fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        self.allocator().set_memory_fraction(fraction)
    }

    fn set_config(&self, config: AllocatorConfig) {
        self.allocator().set_config(config);
    }

    fn add_free_memory_callback(&self, callback: Box<dyn Fn() -> bool + Send + Sync>) -> HookId {
        self.allocator().add_free_memory_callback(callback)
    }

    fn add_out_of_memory_observer(&self, observer: Box<dyn Fn(&OutOfMemory) + Send + Sync>) -> HookId {
        self.allocator().add_out_of_memory_observer(observer)
    }

    fn remove_hook(&self, id: HookId) -> bool {
        self.allocator().remove_hook(id)
    }

    fn is_host_used(&self) -> bool {
        self.host_allocator().is_used()
    }

    fn host_statistics(&self) -> HostStatistics {
        self.host_allocator().statistics()
    }

    fn reset_peak_host_statistics(&self) {
        self.host_allocator().reset_peak_statistics();
    }

    fn reset_accumulated_host_statistics(&self) {
        self.host_allocator().reset_accumulated_statistics();
    }

    fn empty_host_cache(&self) -> Result<()> {
        self.host_allocator().empty_cache()
    }
}
