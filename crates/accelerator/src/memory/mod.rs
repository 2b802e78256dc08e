//! Memory of the current accelerator: statistics, cache, limits. PyTorch: `torch.accelerator.memory`, and functions
//! that exist only in `torch.cuda.memory`.
//!
//! A device is in use after the first request to its allocator. Before that, its statistics are empty or 0, and
//! emptying the cache and resetting statistics do nothing. Functions open a device only if their documentation says so.
//! Sizes are in bytes.

mod cache;
mod device;
mod history;
mod hooks;
mod host;
mod info;
mod settings;
mod statistics;
mod summary;

pub use cache::{empty_cache, empty_host_cache, empty_pool_cache, memory_snapshot, pool_snapshot};
pub use device::DeviceMemory;
pub use history::{histories, record_history};
pub use hooks::{Hook, add_free_memory_callback, attach_out_of_memory_observer, remove_hook};
pub use host::{host_memory_stats, host_statistics, reset_accumulated_host_memory_stats, reset_peak_host_memory_stats};
pub use info::{get_memory_info, get_per_process_memory_fraction, mem_get_info, set_per_process_memory_fraction};
pub(crate) use settings::open;
pub use settings::{get_allocator_settings, set_allocator_settings};
pub use statistics::{
    max_memory_allocated, max_memory_reserved, mem_pools, memory_allocated, memory_reserved, memory_stats,
    memory_summary, memory_summary_abbreviated, reserved_by_private_pools, reset_accumulated_memory_stats,
    reset_peak_memory_stats, statistics,
};
pub use summary::memory_summary_of;
