use accelerator_core::{AllocatorConfig, MIB};

use crate::snapshot::Setting;

/// Returns all settings under PyTorch's names. Settings that do not exist here have the value that means off in
/// PyTorch.
pub(super) fn allocator_settings(config: &AllocatorConfig) -> Vec<(String, Setting)> {
    let limit = |bytes: u64| match bytes {
        u64::MAX => Setting::Integer(-1),
        bytes => Setting::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)),
    };
    let divisions = (0..16).map(|power| {
        let from = 1_u64 << power;
        let steps = config.roundup_power2_divisions.of(from * MIB);
        (from.to_string(), i64::try_from(steps).unwrap_or(i64::MAX))
    });
    let settings = [
        ("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(config.to_string().into())),
        ("max_split_size", limit(config.max_split_size)),
        ("garbage_collection_threshold", Setting::Real(config.garbage_collection_threshold)),
        ("expandable_segments", Setting::Flag(config.expandable_segments)),
        ("pinned_num_register_threads", Setting::Integer(1)),
        ("release_lock_on_cudamalloc", Setting::Flag(false)),
        ("pinned_use_cuda_host_register", Setting::Flag(false)),
        ("graph_capture_record_stream_reuse", Setting::Flag(false)),
        ("max_round_threshold", limit(config.pinned_max_round_threshold)),
        ("max_cached_size", limit(config.pinned_max_cached_size)),
        ("roundup_power2_divisions", Setting::Table(divisions.collect())),
    ];
    settings.map(|(key, value)| (key.to_owned(), value)).into()
}
