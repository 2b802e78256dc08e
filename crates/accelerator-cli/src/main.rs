//! The `accel` program.

use std::process::ExitCode;

use accelerator_cli::commands;
use accelerator_cli::commands::Command;
use clap::Parser;

/// Devices, trace replay, conformance and reports on your own machine.
#[derive(Parser)]
#[command(name = "accel", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // Wrong usage ends here, with exit status 2, as far as it shows without the input.
    let Arguments { command } = Arguments::parse();
    match commands::run(command) {
        Ok(status) => status,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("accel: {error}");
            error.status()
        }
    }
}
