//! Publishes the statistics of a device for Prometheus while a program runs, and prints an exporter's answer to a
//! scrape.
//!
//! ```text
//! cargo run --release -p accelerator-tracker --features metrics --example live
//! ```

use std::error::Error;
use std::time::Duration;

use accelerator::{Buffer, MIB, set_accelerator};
use accelerator_tracker::live::LiveStatistics;
use metrics_exporter_prometheus::PrometheusBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    // A server would install an exporter that listens. This example reads the exporter directly, below.
    let exporter = PrometheusBuilder::new().install_recorder()?;

    set_accelerator("host")?;
    let live = LiveStatistics::start(None, Duration::from_millis(100))?;
    let weights = Buffer::allocate(3 * MIB, None)?;
    let activations = Buffer::allocate(1000, None)?;
    drop(activations);
    drop(live); // publishes a last time

    let scraped = exporter.render();
    let is_shown = |line: &&str| line.contains("_bytes{") || line.contains("_bytes_peak{");
    let mut lines: Vec<_> = scraped.lines().filter(is_shown).collect();
    lines.sort_unstable();
    lines.iter().for_each(|line| println!("{line}"));
    drop(weights);
    Ok(())
}
