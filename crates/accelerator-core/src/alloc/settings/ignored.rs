//! Keys that only PyTorch's CUDA allocator uses. They are accepted and have no effect.

use std::sync::atomic::{AtomicBool, Ordering};

use super::text::Value;

/// A key that has no effect. Its value is validated as in PyTorch.
pub(crate) struct IgnoredKey {
    name: &'static str,
    expected: Expected,
    has_warned: AtomicBool,
}

enum Expected {
    Boolean,
    Allocator,
    /// A power of two up to PyTorch's `pinned_max_register_threads`.
    RegisterThreads,
    /// More than 0.
    Mebibytes,
    /// A fraction or a size. PyTorch accepts any text here and only warns if it is neither.
    Text,
    Table,
}

/// All such keys of PyTorch 2.15.
static KEYS: [IgnoredKey; 11] = [
    IgnoredKey::new("backend", Expected::Allocator),
    IgnoredKey::new("release_lock_on_cudamalloc", Expected::Boolean),
    IgnoredKey::new("release_lock_on_hipmalloc", Expected::Boolean),
    IgnoredKey::new("pinned_use_cuda_host_register", Expected::Boolean),
    IgnoredKey::new("pinned_use_hip_host_register", Expected::Boolean),
    IgnoredKey::new("pinned_num_register_threads", Expected::RegisterThreads),
    IgnoredKey::new("pinned_reserve_segment_size_mb", Expected::Mebibytes),
    IgnoredKey::new("pinned_free_catch_all", Expected::Boolean),
    IgnoredKey::new("graph_capture_record_stream_reuse", Expected::Boolean),
    IgnoredKey::new("expandable_segments_reserve", Expected::Text),
    IgnoredKey::new("expandable_segments_reserve_by_class", Expected::Table),
];

impl IgnoredKey {
    const fn new(name: &'static str, expected: Expected) -> Self {
        Self { name, expected, has_warned: AtomicBool::new(false) }
    }

    /// Returns the ignored key with this name, if there is one.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let key = self.name;
        match self.expected {
            Expected::Boolean => value.boolean(key).map(drop),
            Expected::Allocator => {
                value.one_of(key, &["native", "cudaMallocAsync", "hipMallocAsync"]).map(drop)
            }
            Expected::RegisterThreads => match value.integer(key)? {
                threads if threads.is_power_of_two() && threads <= 128 => Ok(()),
                threads => Err(format!("`{key}` must be a power of two up to 128, not {threads}")),
            },
            Expected::Mebibytes => match value.integer(key)? {
                0 => Err(format!("`{key}` must be more than 0")),
                _ => Ok(()),
            },
            Expected::Text => value.text(key, "a fraction or a size").map(drop),
            Expected::Table => value.table(key).map(drop),
        }
    }

    /// Warns that the key has no effect, once per process. The caller must hold no lock, because the subscriber belongs
    /// to the program and may call this library.
    pub(crate) fn warn_once(&self) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the allocator setting `{}` has no effect: only PyTorch's CUDA allocator uses it",
                self.name
            );
        }
    }
}

#[cfg(test)]
mod tests;
