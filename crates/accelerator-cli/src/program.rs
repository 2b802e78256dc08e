//! The program: its arguments, its messages, and how it ends.

use std::io::{self, Write};
use std::process::ExitCode;

use accelerator_core::printable;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::backends::Backends;
use crate::commands::{self, Command};
use crate::console::tell;
use crate::failure::Failure;
use crate::{signals, warnings};

/// Devices, trace replay, conformance and reports on your own machine.
#[derive(Parser)]
#[command(name = "accel", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

impl Backends {
    /// Does everything that the `main` of a program `accel` must do: reads the arguments, runs the command, and prints
    /// what goes wrong. Returns the exit status.
    pub fn main(self) -> ExitCode {
        signals::watch();
        warnings::show();
        let ended = self.check().and_then(|()| match self.parse() {
            Ok(Arguments { command }) => commands::run(command, &self),
            Err(told) => told_by_clap(told),
        });
        // Flushing can also fail.
        let ended = ended.and_then(|status| Ok(io::stdout().flush().map(|()| status)?));
        match ended {
            Ok(status) => status,
            Err(error) if error.is_closed_pipe() => signals::end_by_closed_pipe(),
            Err(error) => {
                tell(&error);
                error.status()
            }
        }
    }

    fn parse(&self) -> Result<Arguments, clap::Error> {
        let mut program = self.complete(Arguments::command());
        let matches = program.try_get_matches_from_mut(std::env::args_os())?;
        Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut program))
    }
}

/// Prints the help, the version, or the usage error that clap found in the arguments.
fn told_by_clap(mut told: clap::Error) -> Result<ExitCode, Failure> {
    let escaped = told.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, printable(text))).filter(|(_, shown)| shown != text),
        _ => None,
    });
    for (kind, shown) in escaped.collect::<Vec<_>>() {
        told.insert(kind, ContextValue::String(shown));
        told.remove(ContextKind::Suggested); // it may contain the same text
    }
    let text = told.render().to_string();
    if told.use_stderr() {
        let _ = io::stderr().write_all(text.as_bytes()); // there is nowhere else to report it
        return Ok(ExitCode::from(2));
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
