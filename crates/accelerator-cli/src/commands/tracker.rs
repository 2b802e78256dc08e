use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use accelerator_tracker::tracker::{Summary, TrackerStats};
use clap::Args;

use super::reading::Reading;
use crate::failure::Failure;

/// The arguments of `accel tracker`.
#[derive(Args)]
pub struct Arguments {
    /// The tracker file, from `MemoryTracker::save_stats` or from PyTorch
    file: PathBuf,
    /// The number of operators to show
    #[arg(long, default_value_t = Summary::DEFAULT_TOP)]
    top: usize,
    #[command(flatten)]
    reading: Reading,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stats = TrackerStats::load_with(&arguments.file, arguments.reading.limits())?;
    writeln!(std::io::stdout().lock(), "{}", stats.summary_top(arguments.top))?;
    Ok(ExitCode::SUCCESS)
}
