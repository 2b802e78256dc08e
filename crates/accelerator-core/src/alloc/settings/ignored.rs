//! Keys that only PyTorch's CUDA allocator uses. They are accepted and have no effect.

use std::sync::atomic::{AtomicBool, Ordering};

use super::text::Value;

/// Validates the value of a key as PyTorch does.
type Check = fn(&str, &Value) -> Result<(), String>;

/// A key that has no effect.
pub(crate) struct IgnoredKey {
    name: &'static str,
    check: Check,
    has_warned: AtomicBool,
}

const BOOLEAN: Check = |key, value| value.boolean(key).map(drop);

/// All such keys of PyTorch 2.15.
static KEYS: [IgnoredKey; 10] = [
    IgnoredKey::new("backend", |key, value| {
        value.one_of(key, &["native", "cudaMallocAsync", "hipMallocAsync"]).map(drop)
    }),
    IgnoredKey::new("release_lock_on_cudamalloc", BOOLEAN),
    IgnoredKey::new("release_lock_on_hipmalloc", BOOLEAN),
    IgnoredKey::new("pinned_use_cuda_host_register", BOOLEAN),
    IgnoredKey::new("pinned_use_hip_host_register", BOOLEAN),
    IgnoredKey::new("pinned_num_register_threads", |key, value| match value.integer(key)? {
        threads if threads.is_power_of_two() && threads <= 128 => Ok(()), // up to `pinned_max_register_threads`
        threads => Err(format!("`{key}` must be a power of two up to 128, not {threads}")),
    }),
    IgnoredKey::new("pinned_reserve_segment_size_mb", |key, value| match value.integer(key)? {
        0 => Err(format!("`{key}` must be more than 0")),
        _ => Ok(()),
    }),
    IgnoredKey::new("pinned_free_catch_all", BOOLEAN),
    // PyTorch accepts any text here and only warns if it is neither.
    IgnoredKey::new("expandable_segments_reserve", |key, value| value.text(key, "a fraction or a size").map(drop)),
    IgnoredKey::new("expandable_segments_reserve_by_class", |key, value| value.table(key).map(drop)),
];

impl IgnoredKey {
    const fn new(name: &'static str, check: Check) -> Self {
        Self { name, check, has_warned: AtomicBool::new(false) }
    }

    /// Returns the ignored key with this name, if there is one.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        (self.check)(self.name, value)
    }

    /// Warns that the key has no effect, once per process. The caller must hold no lock, because the subscriber belongs
    /// to the program and may call this library.
    pub(crate) fn warn_once(&self) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let name = self.name;
            tracing::warn!("the allocator setting `{name}` has no effect: only PyTorch's CUDA allocator uses it");
        }
    }
}

#[cfg(test)]
mod tests;
