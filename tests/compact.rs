//! The policy `compact` on recorded jobs: how much it reserves beyond what they request, how often it calls the driver,
//! and how small a device is enough.
#![allow(clippy::expect_used, clippy::panic, reason = "a failing test panics")]

#[path = "compact/jobs.rs"]
mod jobs;
#[path = "compact/replayed.rs"]
mod replayed;
#[path = "compact/smallest.rs"]
mod smallest;
#[path = "compact/steps.rs"]
mod steps;

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use jobs::Job;
use replayed::Device;

/// The limits for a device.
#[derive(Clone, Copy)]
struct Bounds {
    device: Device,
    /// Peak reserved bytes over peak requested bytes: the geometric mean over all jobs, and the worst job.
    mean: f64,
    worst: f64,
    /// Device calls relative to PyTorch's expandable segments.
    calls: Option<u64>,
    /// The smallest device over the bytes that are live at once: the geometric mean over all jobs, and the worst job.
    smallest: (f64, f64),
}

const BOUNDS: [Bounds; 3] = [
    Bounds { device: Device::Maps, mean: 1.02, worst: 1.035, calls: Some(2), smallest: (1.008, 1.02) },
    Bounds { device: Device::MapsOnce, mean: 1.04, worst: 1.085, calls: None, smallest: (1.012, 1.03) },
    // PyTorch's expandable segments are not compared here, because they need virtual memory.
    Bounds { device: Device::Plain, mean: 1.15, worst: 1.5, calls: None, smallest: (1.02, 1.05) },
];
/// Jobs with uniform steps, and the minimum number of steps that repeat the previous one.
const REPEATING: [(&str, usize); 5] = [
    ("gpt2_train", 3),
    ("gpt2_ddp_buckets", 2),
    ("gpt2_fsdp_emulated", 2),
    ("resnet50_train", 2),
    ("vit_amp_train", 2),
];

fn main() {
    let arguments = Arguments::from_args();
    let trials = [("models", jobs::models()), ("jobs", jobs::jobs())].into_iter().flat_map(|(set, jobs)| {
        let jobs: Vec<_> = jobs.into_iter().map(Arc::new).collect();
        BOUNDS.into_iter().flat_map(move |bounds| trials_of(set, &jobs, bounds))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn trials_of(set: &str, jobs: &[Arc<Job>], bounds: Bounds) -> Vec<Trial> {
    let device = bounds.device.name();
    let each = jobs.iter().cloned().map(|job| {
        Trial::test(format!("{device}::{set}::{}", job.name), move || {
            reserves_little(&job, bounds)?;
            makes_few_calls(&job, bounds)?;
            makes_no_calls_in_repeated_steps(&job, bounds)?;
            job.smallest_over_live(bounds.device, bounds.smallest.1).map(drop)
        })
    });
    let jobs = jobs.to_vec();
    let all = Trial::test(format!("{device}::{set}::mean"), move || all_reserve_little(&jobs, bounds));
    each.chain([all]).collect()
}

/// Returns the peak of reserved memory over what was requested from PyTorch's allocator at its peak.
fn overhead(job: &Job, device: Device) -> Result<f64, Failed> {
    Ok(job.replayed(device)?.reserved as f64 / job.pytorch.requested as f64)
}

fn reserves_little(job: &Job, Bounds { device, worst, .. }: Bounds) -> Result<(), Failed> {
    match overhead(job, device)? {
        overhead if (1.0..=worst).contains(&overhead) => Ok(()),
        overhead => Err(format!("reserved over requested is {overhead:.4}; the limit is {worst}").into()),
    }
}

fn all_reserve_little(jobs: &[Arc<Job>], bounds: Bounds) -> Result<(), Failed> {
    let Bounds { device, mean, smallest: (smallest, worst), .. } = bounds;
    let means = [
        ("reserved over requested", mean_of(jobs, |job| overhead(job, device))?, mean),
        ("the smallest device over live bytes", mean_of(jobs, |job| job.smallest_over_live(device, worst))?, smallest),
    ];
    match means.into_iter().find(|(_, mean, allowed)| mean > allowed) {
        None => Ok(()),
        Some((what, mean, allowed)) => Err(format!("{what} is {mean:.4}; the limit is {allowed}").into()),
    }
}

/// Returns the geometric mean of a ratio.
fn mean_of(jobs: &[Arc<Job>], ratio: impl Fn(&Job) -> Result<f64, Failed>) -> Result<f64, Failed> {
    let logarithms = jobs.iter().map(|job| Ok(ratio(job)?.ln())).collect::<Result<Vec<f64>, Failed>>()?;
    Ok((logarithms.iter().sum::<f64>() / jobs.len() as f64).exp())
}

fn makes_few_calls(job: &Job, Bounds { device, calls, .. }: Bounds) -> Result<(), Failed> {
    let (ours, theirs) = (job.replayed(device)?.device_calls, job.pytorch.device_calls);
    match calls.is_none_or(|calls| ours <= calls * theirs) {
        true => Ok(()),
        false => Err(format!("{ours} device calls; PyTorch's expandable segments make {theirs}").into()),
    }
}

fn makes_no_calls_in_repeated_steps(job: &Job, bounds: Bounds) -> Result<(), Failed> {
    let repeated = &job.replayed(bounds.device)?.repeated_steps;
    // Segments cannot be remapped on this device, so one repeated step may still search for placements.
    let looking = usize::from(bounds.device == Device::Plain);
    if let Some((step, calls)) = repeated.iter().filter(|(_, calls)| *calls > 0).nth(looking) {
        return Err(format!("{step} repeats the previous step but calls the driver {calls} times").into());
    }
    match REPEATING.iter().find(|(name, _)| *name == job.name) {
        Some((_, least)) if repeated.len() < *least => {
            Err(format!("{} steps repeat the previous one, expected {least}", repeated.len()).into())
        }
        _ => Ok(()),
    }
}
