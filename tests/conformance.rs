//! The conformance suite, for every backend of the workspace.

use std::process::ExitCode;

use accelerator_conformance::{Capability, Sim, Suite};
use accelerator_host::Host;

fn main() -> ExitCode {
    let sim = Suite::<Sim>::new("sim")
        .lacks(Capability::Bytes, "the simulated device has addresses only")
        .lacks(Capability::Clock, "the simulated device has no clock");
    let host = Suite::<Host>::new("host");
    sim.plan().and(host.plan()).main()
}
