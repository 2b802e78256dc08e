//! The commands of `accel`, a file each.

mod conformance;
mod info;
mod replay;
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
    /// Runs the conformance suite on this machine.
    Conformance(conformance::Arguments),
    /// Tries everything on this machine's hardware, and reports it as Markdown.
    Verify(verify::Arguments),
}

/// Runs a command; the exit status is that of a command that ran.
///
/// # Errors
/// [`Failure`], with exit status 1.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Info(arguments) => info::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
    }
}
