//! Settings strings. An input is a list of strings, one on each line, which are applied in turn.
//!
//! Whatever is accepted can be written and read again, means what a naive reading says, does not depend on white space,
//! and rounds sizes to whole blocks.

use accelerator_core::{AllocatorConfig, MIB, Policy};

use super::text::check_message;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut config = AllocatorConfig::default();
    for line in text.split('\n') {
        let read = config.updated(line);
        let spaced: String = line.chars().flat_map(|c| [c, ' ']).collect();
        assert_eq!(read.as_ref().ok(), config.updated(&spaced).as_ref().ok(), "white space matters in {line:?}");
        match read {
            Ok(updated) => {
                check_values(line, &config, &updated);
                check_rounding(&updated);
                config = updated;
            }
            Err(error) => check_message(&error.to_string()),
        }
        if let Ok(alone) = AllocatorConfig::default().updated(line) {
            let written = alone.to_string();
            let again = AllocatorConfig::default().updated(&written);
            assert!(again.as_ref().is_ok_and(|again| *again == alone), "{line:?} is written as {written}: {again:?}");
        }
    }
}

/// Compares some settings with a naive reading of a text that was accepted.
fn check_values(text: &str, before: &AllocatorConfig, after: &AllocatorConfig) {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let last = |key: &str| {
        let mut given = outside_of_tables(&compact).into_iter().filter_map(|pair| pair.split_once(':'));
        given.rfind(|(given, _)| *given == key).map(|(_, value)| value.to_owned())
    };
    let flag = |key: &str, before: bool| last(key).map_or(before, |value| value == "True");
    let bytes = |key: &str, before: u64| {
        last(key).map_or(before, |value| value.parse::<u64>().unwrap().min(u64::MAX / MIB) * MIB)
    };
    assert_eq!(after.caching, flag("caching", before.caching));
    assert_eq!(after.expandable_segments, flag("expandable_segments", before.expandable_segments));
    assert_eq!(after.device_side_reuse, flag("device_side_reuse", before.device_side_reuse));
    assert_eq!(after.reclaim_live_pools, flag("reclaim_live_pools", before.reclaim_live_pools));
    assert_eq!(after.max_split_size, bytes("max_split_size_mb", u64::MAX));
    assert_eq!(after.large_segment_size, bytes("large_segment_size_mb", before.large_segment_size));
    assert_eq!(after.pinned_max_cached_size, bytes("pinned_max_cached_size_mb", before.pinned_max_cached_size));
    let is_compact = last("policy").map_or(before.policy == Policy::Compact, |value| value == "compact");
    assert_eq!(after.policy == Policy::Compact, is_compact);
    let threshold = last("garbage_collection_threshold").map_or(0.0, |value| value.parse().unwrap());
    assert_eq!(after.garbage_collection_threshold, threshold);
}

/// Splits a text at the commas that are in no table.
fn outside_of_tables(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.collect()
}

/// Whatever the settings, a block has room for its request, wastes no more than the larger of the request and the
/// smallest block, and needs no second rounding.
fn check_rounding(config: &AllocatorConfig) {
    const BLOCK: u64 = 512;
    const LARGEST: u64 = 1 << 60;
    let powers = (0..=60).map(|power| 1_u64 << power);
    for size in powers.flat_map(|power| [power - 1, power, power + 1, power + power / 3]).chain([u64::MAX]) {
        let (least, block) = (size.clamp(1, LARGEST), config.rounded(size));
        assert!(block >= least && block - least < least.max(BLOCK), "{size} becomes {block}: {config}");
        assert_eq!((block % BLOCK, config.rounded(block)), (0, block), "{size}: {config}");
    }
}
