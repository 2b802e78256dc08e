//! The Vulkan backend beyond conformance, on the first device: data, limits, kernels, native handles, failures.
#![expect(clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "vulkan/absent.rs"]
mod absent;
#[path = "vulkan/bytes.rs"]
mod bytes;
#[path = "programs/caches.rs"]
mod caches;
#[path = "vulkan/failures.rs"]
mod failures;
#[path = "vulkan/graphs.rs"]
mod graphs;
#[path = "vulkan/kernels.rs"]
mod kernels;
#[path = "vulkan/limits.rs"]
mod limits;
#[path = "vulkan/native.rs"]
mod native;
#[path = "vulkan/numbers.rs"]
mod numbers;
#[path = "vulkan/rig.rs"]
mod rig;
#[path = "vulkan/spy.rs"]
mod spy;
#[path = "vulkan/virtual_memory.rs"]
mod virtual_memory;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        absent::trials(),
        bytes::trials(),
        kernels::trials(),
        limits::trials(),
        native::trials(),
        failures::trials(),
        graphs::trials(),
        virtual_memory::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
