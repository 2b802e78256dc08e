//! Keys and table compared with files that PyTorch 2.15 wrote: `torch.cuda.memory_stats()` and `memory_summary()` at
//! the same moment.

use std::collections::BTreeMap;

use accelerator::memory::memory_summary_of;
use accelerator_core::{Device, DeviceKind, PoolStat, Stat, Statistics};

const STATS: &str = include_str!("data/pytorch/tiny_transformer.memory_stats.json");
const SUMMARY: &str = include_str!("data/pytorch/tiny_transformer.memory_summary.txt");

/// Returns the numbers in the file, by key.
fn pytorch_stats() -> BTreeMap<&'static str, i64> {
    let entries = STATS.split([',', '{', '}']).filter_map(|entry| {
        let (key, value) = entry.trim().split_once("\": ")?;
        Some((key.strip_prefix('"')?, value.trim().parse().ok()?))
    });
    entries.collect()
}

fn statistics(values: &BTreeMap<&'static str, i64>) -> Statistics {
    let stat = |name: &str| {
        let value = |metric| values[format!("{name}.{metric}").as_str()];
        Stat { current: value("current"), peak: value("peak"), allocated: value("allocated"), freed: value("freed") }
    };
    let pools = |name: &str| PoolStat {
        all: stat(&format!("{name}.all")),
        small_pool: stat(&format!("{name}.small_pool")),
        large_pool: stat(&format!("{name}.large_pool")),
    };
    Statistics {
        allocation: pools("allocation"),
        segment: pools("segment"),
        active: pools("active"),
        inactive_split: pools("inactive_split"),
        allocated_bytes: pools("allocated_bytes"),
        reserved_bytes: pools("reserved_bytes"),
        active_bytes: pools("active_bytes"),
        inactive_split_bytes: pools("inactive_split_bytes"),
        requested_bytes: pools("requested_bytes"),
        oversize_allocations: stat("oversize_allocations"),
        oversize_segments: stat("oversize_segments"),
        num_alloc_retries: values["num_alloc_retries"],
        num_ooms: values["num_ooms"],
        num_sync_all_streams: values["num_sync_all_streams"],
        num_device_alloc: values["num_device_alloc"],
        num_device_free: values["num_device_free"],
        num_oom_rejections: values["num_oom_rejections"],
        max_split_size: values["max_split_size"],
        paused_bytes: 0,
        expandable_segments: false,
    }
}

#[test]
fn every_key_of_pytorch_is_ours() {
    let theirs = pytorch_stats();
    assert!(theirs.len() > 100, "{} keys were read", theirs.len());
    let ours: BTreeMap<_, _> = statistics(&theirs).entries().into_iter().collect();
    let missing: Vec<_> = theirs.iter().filter(|(key, value)| ours.get(**key) != Some(value)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let more: Vec<_> = ours.keys().filter(|key| !theirs.contains_key(key.as_str())).collect();
    assert!(more.is_empty(), "{more:?}");
}

#[test]
fn the_table_shows_the_numbers_of_pytorch() {
    let device = Device { kind: DeviceKind::new("cuda"), index: 0 };
    let ours = memory_summary_of(device, &statistics(&pytorch_stats()), &BTreeMap::new(), &BTreeMap::new(), false);
    let theirs = SUMMARY.replace("GPU reserved memory  ", "Reserved memory      ");
    let theirs = theirs.replace("GPU reserved segments", "Reserved segments    ");
    let theirs = theirs.replace("Oversize GPU segments", "Oversize segments    ");
    let table = |text: &str| -> Vec<String> {
        text.lines().skip_while(|line| !line.contains("Metric")).map(str::to_owned).collect()
    };
    assert!(table(&theirs).len() > 30);
    assert_eq!(table(&ours), table(&theirs));

    let expandable = Statistics { expandable_segments: true, ..statistics(&pytorch_stats()) };
    let (ours, mut own) =
        (table(&ours), table(&memory_summary_of(device, &expandable, &BTreeMap::new(), &BTreeMap::new(), false)));
    let line = own.remove(own.len() - 2);
    assert!(line.contains("expandable segments in use") && line.len() == ours[0].len(), "{line}");
    assert_eq!(own.remove(own.len() - 2), ours[1], "a rule");
    assert_eq!(own, ours, "everything else is unchanged");
}

/// The keys that `torch.xpu.memory_stats` documents, each for all memory and for the two pools, with current, peak, and
/// cumulative values. `core` and `pool` are its documentation's names for the parts of a key such as
/// `"allocated_bytes.{all,large_pool,small_pool}.{current,…}"`.
#[test]
fn every_documented_key_of_xpu_is_ours() {
    let ours = statistics(&pytorch_stats()).entries();
    for core in ["allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"] {
        for pool in ["all", "large_pool", "small_pool"] {
            for metric in ["current", "peak", "allocated", "freed"] {
                let key = format!("{core}.{pool}.{metric}");
                let found = ours.iter().filter(|(own, _)| *own == key).count();
                assert_eq!(found, 1, "{key}");
            }
        }
    }
}
