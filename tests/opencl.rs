//! The OpenCL backend beyond conformance, on the first device: data, kernels, native handles, failures, and traces of
//! real models.
#![expect(clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "opencl/bytes.rs"]
mod bytes;
#[path = "programs/caches.rs"]
mod caches;
#[path = "opencl/captured.rs"]
mod captured;
#[path = "opencl/events.rs"]
mod events;
#[path = "opencl/failures.rs"]
mod failures;
#[path = "opencl/graphs.rs"]
mod graphs;
#[path = "opencl/kernels.rs"]
mod kernels;
#[path = "opencl/limits.rs"]
mod limits;
#[path = "opencl/native.rs"]
mod native;
#[path = "opencl/release.rs"]
mod release;
#[path = "opencl/rig.rs"]
mod rig;
#[path = "opencl/traces.rs"]
mod traces;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        bytes::trials(),
        graphs::trials(),
        kernels::trials(),
        release::trials(),
        limits::trials(),
        native::trials(),
        events::trials(),
        failures::trials(),
        traces::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
