use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::compare::{progress, trace};
use super::reading::Reading;
use crate::compare::{Advice, Comparison, Setting};
use crate::failure::Failure;

/// The arguments of `accel advise`.
#[derive(Args)]
pub struct Arguments {
    /// The recorded job: a trace, or a snapshot with a history
    ///
    /// PyTorch or this project may have written the snapshot. The file may be compressed with gzip or zstd. `-` reads
    /// standard input.
    trace: PathBuf,
    /// The device in the snapshot [default: the one with the longest history]
    #[arg(long)]
    device: Option<u32>,
    /// Print the advice as JSON
    ///
    /// `text` is the advice for readers. `set` has the recommended settings: an empty text for the default ones, and
    /// null if nothing is worth a change. `settings` has the results of all: peaks and sizes in bytes, and `smallest`
    /// is null if the job never completes.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let trace = trace(&arguments.trace, arguments.device, arguments.reading.limits())?;
    let settings = Setting::compared(trace.recorded.clone())?;
    let now = match &trace.recorded {
        Some(recorded) => recorded.clone(),
        None => Setting::read("")?,
    };
    let progress = progress();
    progress.set_message(trace.name.clone());
    let comparison = Comparison::of(&trace, &settings, None, &progress)?;
    progress.finish_and_clear();
    if let Some(advice) = Advice::of(&comparison, &now) {
        let mut out = std::io::stdout().lock();
        if arguments.json {
            advice.write_json(&mut out)?;
        } else {
            write!(out, "{advice}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
