//! The commands of `accel`, one file for each.

mod advise;
mod bench;
mod compare;
#[cfg(feature = "conformance")]
mod conformance;
mod convert;
mod info;
mod outputs;
mod reading;
mod replay;
mod report;
mod tracker;
#[cfg(feature = "conformance")]
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::backends::Backends;
use crate::failure::Failure;

/// The commands of `accel`.
#[derive(Subcommand)]
pub enum Command {
    /// Show the devices of every backend, or why there are none.
    Info(info::Arguments),
    /// Replay an allocation trace and show how the allocator handled it.
    Replay(Box<replay::Arguments>),
    /// Recommend allocator settings for a job, and show what they save.
    Advise(advise::Arguments),
    /// Convert the history in a snapshot to an allocation trace.
    Convert(convert::Arguments),
    /// Show where the memory went: as a page, as pictures, or as a trace for Perfetto.
    Report(Box<report::Arguments>),
    /// Run the conformance suite on this machine.
    #[cfg(feature = "conformance")]
    Conformance(conformance::Arguments),
    /// Show which operators used the most memory, from a tracker file.
    Tracker(tracker::Arguments),
    /// Measure the allocator's host time.
    Bench(Box<bench::Arguments>),
    /// Test and measure a backend on this machine, and write a report in Markdown.
    #[cfg(feature = "conformance")]
    Verify(verify::Arguments),
}

/// Runs a command on these backends. Returns its exit status.
///
/// # Errors
/// [`Failure`], which also has an exit status.
pub fn run(command: Command, backends: &Backends) -> Result<ExitCode, Failure> {
    let ended = match command {
        Command::Info(arguments) => info::run(&arguments, backends),
        Command::Replay(arguments) => replay::run(&arguments, backends),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        #[cfg(feature = "conformance")]
        Command::Conformance(arguments) => conformance::run(&arguments, backends),
        Command::Tracker(arguments) => tracker::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments, backends),
        #[cfg(feature = "conformance")]
        Command::Verify(arguments) => verify::run(&arguments, backends),
    };
    ended.map_err(Failure::with_advice)
}
