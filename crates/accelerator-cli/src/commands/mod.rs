//! The commands of `accel`, a file each.

mod conformance;
mod info;
mod replay;

use std::io;
use std::process::ExitCode;

use accelerator_core::Error;
use clap::Subcommand;

use crate::replay::ReplayError;
use crate::trace::SourceError;

/// What `accel` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Shows the devices of every backend that was compiled in, or why there are none.
    Info,
    /// Replays an allocation trace and shows what the allocator made of it.
    Replay(replay::Arguments),
    /// Runs the conformance suite on this machine.
    Conformance(conformance::Arguments),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The trace cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A line of the trace cannot be replayed.
    #[error("{trace}:{line}: {error}")]
    Line {
        /// The trace.
        trace: String,
        /// The line.
        line: usize,
        /// Why.
        error: ReplayError,
    },
    /// The library refuses.
    #[error(transparent)]
    Accelerator(#[from] Error),
    /// No conformance case has this in its name.
    #[error("no case has `{0}` in its name")]
    NoCase(String),
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Whether the reader of the output has had enough, as in `accel info | head -1`.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Runs a command; the exit status is that of a command that ran.
///
/// # Errors
/// [`Failure`], with exit status 1.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Info => info::run(),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
    }
}
