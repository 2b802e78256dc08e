//! What holds between the statistics at every moment, also while other threads allocate.

use std::collections::BTreeMap;

const QUANTITIES: [&str; 9] = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
];

pub(crate) fn check_relations(statistics: &BTreeMap<String, i64>) {
    for (key, value) in statistics {
        let Some((name, metric)) = key.split_once(".all.") else { continue };
        if metric != "peak" {
            let pools =
                ["small_pool", "large_pool"].map(|pool| statistics[&format!("{name}.{pool}.{metric}")]);
            assert_eq!(pools[0] + pools[1], *value, "small and large are not all: {key}");
        }
    }
    for pool in ["all", "small_pool", "large_pool"] {
        let get = |name: &str, metric: &str| statistics[&format!("{name}.{pool}.{metric}")];
        let order = [
            ("requested_bytes", "active_bytes"),
            ("allocated_bytes", "active_bytes"),
            ("active_bytes", "reserved_bytes"),
            ("inactive_split_bytes", "reserved_bytes"),
            ("allocation", "active"),
        ];
        for (less, more) in order {
            for metric in ["current", "peak"] {
                let (less_value, more_value) = (get(less, metric), get(more, metric));
                // The peaks are reset together, so they keep the order too.
                assert!(
                    less_value <= more_value,
                    "{less}.{pool}.{metric} {less_value} > {more}.{pool}.{metric} {more_value}"
                );
            }
        }
        for name in QUANTITIES {
            assert!(get(name, "current") >= 0, "{name}.{pool}.current is negative");
            assert!(
                get(name, "current") <= get(name, "peak"),
                "{name}.{pool}: the peak is below the current value"
            );
        }
    }
}
