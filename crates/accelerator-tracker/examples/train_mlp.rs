//! Trains a small network on the host, tracked from start to end.
//!
//! The network learns which of three spirals a point is on. As in a framework, the forward pass, the backward pass and
//! the optimizer are kernels on the memory and the stream of the device, each with its own buffers. Its modules are
//! nested, and operators are named after them as in PyTorch: `blocks.0.fc1.forward.addmm_1`. At the end, the example
//! shows where the memory went.
//!
//! ```text
//! cargo run --release -p accelerator-tracker --example train_mlp -- --stats run.jsonl --snapshot run.pickle
//! accel report run.jsonl -o report.html
//! ```

#[path = "train_mlp/layers.rs"]
mod layers;
#[path = "train_mlp/network.rs"]
mod network;
#[path = "train_mlp/operators.rs"]
mod operators;
#[path = "train_mlp/spirals.rs"]
mod spirals;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use accelerator::{memory, set_accelerator};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::history::{HistoryOptions, dump_snapshot, record_memory_history};
use accelerator_tracker::tracker::Feed;
use clap::Parser;

use network::Network;
use operators::Operators;
use spirals::Spirals;

/// Trains a small network on the host, and shows where the memory went.
#[derive(Parser)]
struct Arguments {
    /// The number of training steps, each with all points
    #[arg(long, default_value_t = 300)]
    steps: u32,
    /// Save the tracker file, for `accel tracker` and `accel report`
    #[arg(long)]
    stats: Option<PathBuf>,
    /// Also record the memory history, and save a snapshot of it for PyTorch's memory_viz
    #[arg(long)]
    snapshot: Option<PathBuf>,
    /// Let the tracker record everything that is submitted to the device, including allocations and copies
    #[arg(long)]
    automatic: bool,
    /// Train this many times with the tracker and as often without it, alternately, and show the cost of tracking
    #[arg(long)]
    compare: Option<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    set_accelerator("host")?;
    let tracker = MemoryTracker::new(None)?;
    let feed = if arguments.automatic { Feed::Automatic } else { Feed::Explicit };
    if let Some(times) = arguments.compare {
        return compare(times, arguments.steps, &tracker, feed);
    }
    if arguments.snapshot.is_some() {
        record_memory_history(HistoryOptions::default(), None)?;
    }
    tracker.start_monitor(feed)?;
    let accuracy = train(arguments.steps, &tracker, feed)?;
    tracker.stop()?;

    let mut out = std::io::stdout().lock();
    writeln!(out, "{:.1} % of the points are classified correctly\n", 100.0 * accuracy)?;
    writeln!(out, "{}\n", tracker.summary_top(10))?;
    writeln!(out, "{}", memory::memory_summary_abbreviated(None)?)?;
    if let Some(path) = arguments.stats {
        tracker.save_stats(path)?;
    }
    if let Some(path) = arguments.snapshot {
        dump_snapshot(path)?;
    }
    Ok(())
}

/// Trains a new network. Returns the share of points that it classifies correctly.
fn train(steps: u32, tracker: &MemoryTracker, feed: Feed) -> accelerator::Result<f32> {
    let operators = Operators::new(tracker, feed)?;
    let spirals = Spirals::new(512)?;
    let mut network = Network::new(32, 2)?;
    for _ in 0..steps {
        tracker.forward_start();
        let (scores, hidden) = network.forward(&operators, &spirals.points)?;
        tracker.forward_backward_boundary();
        let gradient = operators.cross_entropy_gradient(&scores, &spirals.labels)?;
        let gradients = network.backward(&operators, gradient, hidden, &spirals.points)?;
        tracker.marker("optimizer");
        network.update(&operators, &gradients)?;
    }
    tracker.marker("evaluation");
    network.accuracy(&operators, &spirals)
}

/// Shows the cost of tracking.
fn compare(times: u32, steps: u32, tracker: &MemoryTracker, feed: Feed) -> Result<(), Box<dyn Error>> {
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..times {
        for (tracked, took) in took.iter_mut().enumerate() {
            if tracked == 1 {
                tracker.start_monitor(feed)?;
            }
            let start = Instant::now();
            train(steps, tracker, feed)?;
            took.push(start.elapsed());
            if tracked == 1 {
                tracker.stop()?;
            }
        }
    }
    // Use the minimum, since on a shared machine disturbances only make times longer.
    let [without, with] = took.map(|took| took.into_iter().min().unwrap_or_default());
    let operators = tracker.stats().operators.len();
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!(
        "fastest of {times} runs of {steps} steps: {without:?} untracked, {with:?} tracked, {ratio:.4} times as long"
    );
    println!("{operators} operators in a run");
    Ok(())
}
