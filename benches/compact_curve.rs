//! Prints the curve from which the chunk lengths of the policy `compact` were chosen. `docs/BENCHMARKS.md` explains its
//! columns.
//!
//! Run it with `cargo bench -p accelerator-benches --bench compact_curve`. The lengths apply to the whole process, so
//! the program starts itself again for each line, with the line number.
#![allow(missing_docs, reason = "a benchmark")]

use std::env;
use std::error::Error;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;

use accelerator_cli::replay::Replayer;
use accelerator_cli::trace::{Bundled, Source};
use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, ChunkLengths, GIB, MIB};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The longest chunk in bytes and in ten-thousandths of the reserved memory, and the minimum size of requests that end
/// in a chunk of their own.
const LENGTHS: [(u64, u64, u64); 10] = [
    (NONE, 0, NONE),
    (64 * MIB, 300, NONE),
    (64 * MIB, 300, 24 * MIB),
    (32 * MIB, 200, 24 * MIB),
    (20 * MIB, 105, NONE),
    (20 * MIB, 150, 24 * MIB),
    (20 * MIB, 105, 24 * MIB),
    (20 * MIB, 50, 24 * MIB),
    (16 * MIB, 50, 16 * MIB),
    (8 * MIB, 25, 8 * MIB),
];
const NONE: u64 = u64::MAX;
/// The size in MiB of an additional allocation before each trace. Results vary with any small change, so they are
/// averaged over these.
const AHEAD: [u64; 5] = [0, 1, 7, 33, 100];
/// Second recordings of the same programs.
const SECOND_RECORDINGS: [&str; 4] =
    ["bart_offload_train_2", "bart_offload_train_3", "llama_serve_cat_2", "moe_ep_train_2"];

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.first().map(String::as_str) {
        None => all_lines(),
        Some("expandable") => line("PyTorch's expandable segments | –", "expandable_segments:True"),
        Some(number) => {
            let (longest, share, joint_from) = LENGTHS[number.parse::<usize>()?];
            ChunkLengths { longest, share: (share, 10_000), joint_from }.set();
            line(&name(longest, share, joint_from), "policy:compact")
        }
    }
}

fn all_lines() -> Result<()> {
    println!("| longest chunk | joint from | 9: mean | worst | runs | calls | 15: mean | worst | runs | calls |");
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let numbers = (0..LENGTHS.len()).map(|number| number.to_string());
    for argument in ["expandable".to_owned()].into_iter().chain(numbers) {
        if !Command::new(env::current_exe()?).arg(argument).status()?.success() {
            return Err("a line could not be printed".into());
        }
    }
    Ok(())
}

fn name(longest: u64, share: u64, joint_from: u64) -> String {
    let mib = |bytes| if bytes == NONE { "none".to_owned() } else { format!("{} MiB", bytes / MIB) };
    let share = if share == 0 { String::new() } else { format!(", {} %", share as f64 / 100.0) };
    format!("{}{share} | {}", mib(longest), mib(joint_from))
}

fn line(name: &str, settings: &str) -> Result<()> {
    let columns = [jobs("models")?, jobs("jobs")?].map(|jobs| columns(&jobs, settings));
    let [nine, fifteen] = columns;
    println!("| {name} | {} | {} |", nine?, fifteen?);
    Ok(())
}

/// Returns the names of the jobs in a folder, and the paths of their traces. A trace that is bundled with `accel` may
/// be missing there.
fn jobs(set: &str) -> Result<Vec<(String, PathBuf)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(set);
    let figures = fs::read_to_string(folder.join("expandable.txt"))?;
    let names = figures.lines().filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| *name != "#" && !SECOND_RECORDINGS.contains(name));
    Ok(names.map(|name| (name.to_owned(), folder.join(format!("{name}.trace.zst")))).collect())
}

/// Returns the columns for a set of jobs: means over all sizes in `AHEAD`, and in parentheses the worst value.
fn columns(jobs: &[(String, PathBuf)], settings: &str) -> Result<String> {
    let (mut means, mut worsts, mut worst_of_all, mut runs, mut calls) = (0.0, 0.0, 0.0_f64, 0, 0);
    for ahead in AHEAD {
        let replayed: Vec<_> =
            jobs.iter().map(|(name, path)| replay(name, path, settings, ahead * MIB)).collect::<Result<_>>()?;
        let logarithms: f64 = replayed.iter().map(|job| job.overhead.ln()).sum();
        let worst = replayed.iter().map(|job| job.overhead).fold(0.0, f64::max);
        means += (logarithms / jobs.len() as f64).exp();
        worsts += worst;
        worst_of_all = worst_of_all.max(worst);
        runs += replayed.iter().map(|job| job.runs).sum::<i64>();
        calls += replayed.iter().map(|job| job.calls).sum::<u64>();
    }
    let of = AHEAD.len() as f64;
    let count = |sum: f64| accelerator_tracker::grouped((sum / of).round() as u64);
    let (runs, calls) = (count(runs as f64), count(calls as f64));
    Ok(format!("{:.3} | {:.3} ({worst_of_all:.3}) | {runs} | {calls}", means / of, worsts / of))
}

struct Replayed {
    /// The peak of reserved memory, divided by the peak of requested memory.
    overhead: f64,
    /// The number of driver calls according to the statistics.
    runs: i64,
    /// The number of driver calls that create, map, unmap and destroy.
    calls: u64,
}

fn replay(name: &str, path: &Path, settings: &str, ahead: u64) -> Result<Replayed> {
    let trace = match Bundled::named(name) {
        Some(bundled) if !path.exists() => bundled.source()?,
        _ => Source::open(path)?,
    };
    let config = AllocatorConfig::default().updated(settings)?;
    let accelerator = Accelerator::new(Sim::new(1024 * GIB), 0, config)?;
    // Never freed, since it only shifts the allocations that follow.
    let _first = NonZeroU64::new(ahead)
        .map(|bytes| accelerator.allocator().allocate(bytes, accelerator.default_stream()))
        .transpose()?;
    let mut replayer = Replayer::new(accelerator, false);
    for line in trace {
        replayer.step(&line?)?;
    }
    let statistics = accelerator.allocator().statistics();
    let of = |call| accelerator.backend().calls().of(call);
    let calls = [Call::Create, Call::Map, Call::Unmap, Call::Destroy].map(of).iter().sum();
    replayer.end()?;
    Ok(Replayed {
        overhead: statistics.reserved_bytes.all.peak as f64 / statistics.requested_bytes.all.peak as f64,
        runs: statistics.num_device_alloc + statistics.num_device_free,
        calls,
    })
}
