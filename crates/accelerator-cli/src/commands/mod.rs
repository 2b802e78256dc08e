//! The commands of `accel`, a file each.

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
    /// Replays an allocation trace and shows what the allocator made of it.
    Replay(Box<replay::Arguments>),
    /// Says which settings suit a job best, and what they save.
    Advise(advise::Arguments),
    /// Turns the history in a snapshot, PyTorch's or ours, into an allocation trace.
    Convert(convert::Arguments),
    /// Shows where the memory went: a page, pictures, a trace for Perfetto.
    Report(Box<report::Arguments>),
    /// Runs the conformance suite on this machine.
    Conformance(conformance::Arguments),
    /// Shows which operators took the most memory, from a file of a tracker.
    Tracker(tracker::Arguments),
    /// Measures the allocator's host time on a simulated device.
    Bench(bench::Arguments),
    /// Tries everything on this machine's hardware, and reports it as Markdown.
    Verify(verify::Arguments),
}

/// Runs a command; the exit status is that of a command that ran.
///
/// # Errors
/// [`Failure`], which has its exit status.
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
