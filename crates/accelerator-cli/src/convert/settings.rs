//! Converts the settings of a snapshot to a `conf` line.

use accelerator_core::{AllocatorConfig, MIB, RoundupDivisions};
use accelerator_tracker::excerpt;
use accelerator_tracker::snapshot::Setting;

/// Returns the settings at the end of PyTorch's file, as far as they are supported here. Adds a warning for each
/// setting that is not.
pub(super) fn of_pytorch(settings: &[(String, Setting)], warnings: &mut Vec<String>) -> AllocatorConfig {
    let mut config = AllocatorConfig::default();
    let named = |name: &str| settings.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let text = match named("PYTORCH_CUDA_ALLOC_CONF") {
        Some(Setting::Text(text)) => &**text,
        _ => "",
    };
    let mut refused = Vec::new();
    for setting in split(text) {
        // The keys that PyTorch resets with each new string are handled separately, below.
        match config.updated(setting) {
            Ok(updated) => config = updated,
            Err(_) => refused.push(setting),
        }
    }
    for setting in refused {
        warnings.push(format!("recorded with `{}`, which is not supported here: ignored", excerpt(setting)));
    }
    if let Some(Setting::Integer(bytes)) = named("max_split_size") {
        config.max_split_size = u64::try_from(*bytes).unwrap_or(u64::MAX);
    }
    if let Some(Setting::Real(threshold)) = named("garbage_collection_threshold")
        && (0.0..1.0).contains(threshold)
    {
        config.garbage_collection_threshold = *threshold;
    }
    if let Some(Setting::Flag(expandable)) = named("expandable_segments") {
        config.expandable_segments = *expandable;
    }
    if let Some(Setting::Table(table)) = named("roundup_power2_divisions") {
        config.roundup_power2_divisions = divisions(table).unwrap_or_else(|| {
            warnings.push("roundup_power2_divisions of the snapshot cannot be read: ignored".to_owned());
            RoundupDivisions::default()
        });
    }
    config
}

/// Returns the `conf` line that changes the settings `from` to the settings `to`.
pub(super) fn line(from: &AllocatorConfig, to: &AllocatorConfig) -> String {
    let defaults = AllocatorConfig::default();
    let mut text = to.to_string();
    let mut back = |key: &str, changed: bool, is_default: bool, value: &str| {
        if changed && is_default {
            let separator = if text.is_empty() { "" } else { "," };
            text = format!("{text}{separator}{key}:{value}");
        }
    };
    // A string without these keys leaves them unchanged.
    let (was, is, default) = (from.large_segment_size, to.large_segment_size, defaults.large_segment_size);
    back("large_segment_size_mb", was != is, is == default, &(default / MIB).to_string());
    let (was, is) = (from.expandable_segments, to.expandable_segments);
    back("expandable_segments", was != is, !is, "False");
    back("policy", from.policy != to.policy, to.policy == defaults.policy, "pytorch");
    let (was, is) = (from.memory_fraction, to.memory_fraction);
    back("per_process_memory_fraction", was != is, is == 1.0, "1");
    let (was, is) = (from.reject_ahead_of_driver, to.reject_ahead_of_driver);
    back("throw_on_cudamalloc_oom", was != is, !is, "False");
    back("device_side_reuse", from.device_side_reuse != to.device_side_reuse, !to.device_side_reuse, "False");
    back("caching", from.caching != to.caching, to.caching, "True");
    text
}

/// Splits `a:1,b:[1:2,3:4]` at its commas outside brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = text.split(|letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn divisions(table: &[(String, i64)]) -> Option<RoundupDivisions> {
    if table.iter().all(|(_, steps)| *steps <= 1) {
        return Some(RoundupDivisions::default());
    }
    let entries: Vec<_> = table.iter().map(|(from, steps)| format!("{from}:{steps}")).collect();
    let text = format!("roundup_power2_divisions:[{}]", entries.join(","));
    AllocatorConfig::default().updated(&text).ok().map(|config| config.roundup_power2_divisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leads_from_any_settings_to_any_others() {
        let texts = [
            "",
            "max_split_size_mb:64,garbage_collection_threshold:0.5",
            "large_segment_size_mb:32,max_split_size_mb:40,max_non_split_rounding_mb:64",
            "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True",
            "roundup_power2_divisions:[64:8,256:4,>:1],device_side_reuse:True",
            "caching:False",
            "expandable_segments:True,roundup_power2_divisions:8",
            "policy:compact",
            "policy:compact,expandable_segments:True",
        ];
        let configs = texts.map(|text| AllocatorConfig::default().updated(text).unwrap());
        for from in &configs {
            for to in &configs {
                assert_eq!(from.updated(&line(from, to)).unwrap(), *to, "{}", line(from, to));
            }
        }
    }

    #[test]
    fn settings_of_a_snapshot_are_ours_again() {
        let text = "large_segment_size_mb:24, expandable_segments:False, backend:native, max_split_size_mb:90, \
                    expandable_segments_handle_type:posix_fd, policy:compact";
        let table = [("1", 0), ("2", 0), ("4", 8), ("8", 2)].map(|(from, steps)| (from.to_owned(), steps));
        let settings = [
            ("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(text.into())),
            ("max_split_size", Setting::Integer(90 << 20)),
            ("garbage_collection_threshold", Setting::Real(0.6)),
            ("expandable_segments", Setting::Flag(true)),
            ("roundup_power2_divisions", Setting::Table(table.to_vec())),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let mut warnings = Vec::new();
        let config = of_pytorch(&settings, &mut warnings);
        let expected = "large_segment_size_mb:24,max_split_size_mb:90,garbage_collection_threshold:0.6,\
                        expandable_segments:True,policy:compact,roundup_power2_divisions:[1:0,2:0,4:8,8:2]";
        assert_eq!(config, AllocatorConfig::default().updated(expected).unwrap());
        let refused = "expandable_segments_handle_type:posix_fd";
        assert_eq!(warnings, [format!("recorded with `{refused}`, which is not supported here: ignored")]);
    }
}
