//! Calls of backends that fail, in conformance cases and random programs: on the simulated device, on the host, and on
//! OpenCL and Vulkan devices if there are any. Failing functions of the simulated drivers are in `cuda` and `xpu`.
#![expect(clippy::unwrap_used, reason = "a trial that panics has failed")]

mod failing;
#[path = "failing/in_backend.rs"]
mod in_backend;

use std::process::ExitCode;

use accelerator_conformance::{Sim, unavailable};
use accelerator_host::Host;
use accelerator_opencl::OpenCl;
use accelerator_vulkan::Vulkan;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use in_backend::{InBackend, Known};

impl Known for Host {}
impl Known for OpenCl {}
impl Known for Vulkan {}

/// Creates a trial that needs a device. It is ignored if there is none.
fn trial<B: Known>(name: &str, run: fn(&str) -> Result<(), Failed>) -> Trial {
    let name = format!("{}::{name}", B::KIND);
    Trial::ignorable_test(name.clone(), move || match B::probe() {
        Ok(_) => run(&name).map(|()| Completion::Completed),
        Err(why) => Ok(Completion::ignored_with(unavailable(B::KIND.name(), &why.reason)?)),
    })
}

fn trials<B: Known>() -> [Trial; 2] {
    [
        trial::<B>("random_programs", |name| failing::programs::<InBackend<B>>(name, 10, 2)),
        trial::<B>("conformance", |name| failing::cases::<InBackend<B>>(name, 1)),
    ]
}

fn main() -> ExitCode {
    let trials = [trials::<Sim>(), trials::<Host>(), trials::<OpenCl>(), trials::<Vulkan>()];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
