//! The `accel` program with the backends of this repository.

use std::process::ExitCode;

use accelerator_cli::Backends;

fn main() -> ExitCode {
    Backends::built_in().main()
}
