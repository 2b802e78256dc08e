//! The conformance suite, for every backend of the workspace.

use std::process::ExitCode;

use accelerator_conformance::{Sim, Suite};
use accelerator_host::Host;

fn main() -> ExitCode {
    Sim::suite().plan().and(Suite::<Host>::new("host").plan()).main()
}
