//! The conformance suite for every backend of the workspace.

use std::process::ExitCode;

use accelerator_cli::Backends;

fn main() -> ExitCode {
    Backends::built_in().conformance().main()
}
