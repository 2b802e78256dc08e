//! Statistics through the `metrics` facade: a Prometheus exporter reports the same values as `memory_stats`.
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use std::collections::BTreeMap;
use std::time::Duration;

use accelerator::memory::memory_stats;
use accelerator::{Buffer, MIB, set_accelerator};
use accelerator_tracker::live::LiveStatistics;
use metrics_exporter_prometheus::PrometheusBuilder;

#[test]
fn an_exporter_shows_every_statistic() {
    let exporter = PrometheusBuilder::new().install_recorder().unwrap();
    set_accelerator("host").unwrap();
    let live = LiveStatistics::start(None, Duration::from_millis(2)).unwrap();
    let kept = Buffer::allocate(3 * MIB, None).unwrap();
    drop(Buffer::allocate(5000, None).unwrap());

    // While the publisher runs, the large allocation shows up without further calls.
    let large = "accelerator_memory_allocated_bytes{device=\"host:0\",pool=\"large_pool\"}";
    let shown = || scraped(&exporter.render()).get(large).copied();
    let mut tries = 0;
    while shown() != Some(3.0 * MIB as f64) {
        tries += 1;
        assert!(tries < 5000, "{:?}", shown());
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(live);

    let scraped = scraped(&exporter.render());
    let mut statistics = memory_stats(None).unwrap();
    statistics.retain(|key, _| !key.starts_with("allocated.")); // PyTorch's alias of allocation.*
    let expected: BTreeMap<String, f64> =
        statistics.into_iter().map(|(key, value)| (exported_name(&key), value as f64)).collect();
    assert!(expected.len() > 100, "{}", expected.len());
    assert_eq!(scraped, expected);
    drop(kept);
}

/// Returns the documented name of a metric.
fn exported_name(key: &str) -> String {
    let (path, metric) = key.rsplit_once('.').unwrap_or((key, "current"));
    let (name, pool) = path.split_once('.').map_or((path, None), |(name, pool)| (name, Some(pool)));
    let suffix = match metric {
        "current" if name.starts_with("num_") => "_total",
        "current" => "",
        "peak" => "_peak",
        "allocated" => "_allocated_total",
        _ => "_freed_total",
    };
    let pool = pool.map_or(String::new(), |pool| format!(",pool=\"{pool}\""));
    format!("accelerator_memory_{name}{suffix}{{device=\"host:0\"{pool}}}")
}

/// Parses the samples of an exporter's text, by name and labels.
fn scraped(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}
