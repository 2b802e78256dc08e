//! Relations between the statistics that are always true, even while other threads allocate.

use accelerator_core::{PoolStat, Stat, Statistics};

/// Returns a statistic by pool, with the pools' names.
pub(crate) fn pools(stat: PoolStat) -> [(&'static str, Stat); 3] {
    [("all", stat.all), ("small_pool", stat.small_pool), ("large_pool", stat.large_pool)]
}

pub(crate) fn check_relations(statistics: &Statistics) {
    for (name, stat) in statistics.pool_stats() {
        let PoolStat { all, small_pool, large_pool } = stat;
        for metric in [|stat: Stat| stat.current, |stat: Stat| stat.allocated, |stat: Stat| stat.freed] {
            let sum = metric(small_pool) + metric(large_pool);
            assert_eq!(sum, metric(all), "small and large do not add up to all: {name}");
        }
        for (pool, Stat { current, peak, .. }) in pools(stat) {
            assert!(current >= 0, "{name}.{pool}.current is negative");
            assert!(current <= peak, "{name}.{pool}: the peak is below the current value");
        }
    }
    let Statistics { allocation, active, requested_bytes, allocated_bytes, active_bytes, .. } = *statistics;
    let Statistics { reserved_bytes, inactive_split_bytes, .. } = *statistics;
    for (order, less, more) in [
        ("requested_bytes <= active_bytes", requested_bytes, active_bytes),
        ("allocated_bytes <= active_bytes", allocated_bytes, active_bytes),
        ("active_bytes <= reserved_bytes", active_bytes, reserved_bytes),
        ("inactive_split_bytes <= reserved_bytes", inactive_split_bytes, reserved_bytes),
        ("allocation <= active", allocation, active),
    ] {
        for ((pool, less), (_, more)) in pools(less).into_iter().zip(pools(more)) {
            // The peaks are reset together, so the order applies to them as well.
            let holds = less.current <= more.current && less.peak <= more.peak;
            assert!(holds, "{order}, of {pool}: {less:?}, {more:?}");
        }
    }
}
