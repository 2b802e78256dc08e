//! The settings for pinned host memory, which its allocator reads on every call without a lock.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::config::AllocatorConfig;

/// The pinned-memory part of an [`AllocatorConfig`]. The two allocators of a device share it, so that one call changes
/// the settings of both.
#[derive(Default)]
pub(crate) struct HostSettings {
    max_round_threshold: AtomicU64,
    max_cached_size: AtomicU64,
    use_background_threads: AtomicBool,
}

impl HostSettings {
    pub(crate) fn new(config: &AllocatorConfig) -> Self {
        let settings = Self::default();
        settings.set(config);
        settings
    }

    pub(crate) fn set(&self, config: &AllocatorConfig) {
        self.max_round_threshold.store(config.pinned_max_round_threshold, Ordering::Relaxed);
        self.max_cached_size.store(config.pinned_max_cached_size, Ordering::Relaxed);
        self.use_background_threads.store(config.pinned_use_background_threads, Ordering::Relaxed);
    }

    /// Returns the block size for a request, or `None` if it exceeds the address space. PyTorch: `roundSize`.
    pub(crate) fn block_size(&self, requested: NonZeroU64) -> Option<NonZeroU64> {
        let rounds = requested.get() <= self.max_round_threshold.load(Ordering::Relaxed) && self.caches(requested);
        let size = if rounds { requested.checked_next_power_of_two()? } else { requested };
        (size.get() <= isize::MAX as u64).then_some(size)
    }

    /// Returns whether a block of this size is cached when it is freed.
    pub(crate) fn caches(&self, size: NonZeroU64) -> bool {
        size.get() <= self.max_cached_size.load(Ordering::Relaxed)
    }

    pub(crate) fn uses_background_thread(&self) -> bool {
        self.use_background_threads.load(Ordering::Relaxed)
    }
}
