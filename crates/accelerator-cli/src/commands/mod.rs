//! The commands of `accel`, one file for each.

mod advise;
mod bench;
mod compare;
mod conformance;
mod convert;
mod info;
mod outputs;
mod reading;
mod replay;
mod report;
mod tracker;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// What `accel` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Shows the devices of every backend that was compiled in, or why there are none.
    Info(info::Arguments),
    /// Replays an allocation trace and shows how the allocator handled it.
    Replay(Box<replay::Arguments>),
    /// Says which settings suit a job best, and what they save.
    Advise(advise::Arguments),
    /// Turns the history in a snapshot, from PyTorch or from here, into an allocation trace.
    Convert(convert::Arguments),
    /// Shows where the memory went: a page, pictures, a trace for Perfetto.
    Report(Box<report::Arguments>),
    /// Runs the conformance suite on this machine.
    Conformance(conformance::Arguments),
    /// Shows which operators took the most memory, from the file of a tracker.
    Tracker(tracker::Arguments),
    /// Measures the allocator's host time on a simulated device.
    Bench(bench::Arguments),
    /// Tests everything on this machine's hardware, and reports it as Markdown.
    Verify(verify::Arguments),
}

/// Runs a command. Returns its exit status.
///
/// # Errors
/// [`Failure`], which has an exit status too.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    let ended = match command {
        Command::Info(arguments) => info::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Tracker(arguments) => tracker::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
    };
    ended.map_err(Failure::with_advice)
}
