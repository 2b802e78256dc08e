//! The simulated device, the faulty driver, and the suite on backends on which it cannot run.

#![expect(clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "sim/allocator.rs"]
mod allocator;
#[path = "sim/faulty.rs"]
mod faulty;
#[path = "sim/faulty_graphs.rs"]
mod faulty_graphs;
#[path = "sim/faulty_virtual_memory.rs"]
mod faulty_virtual_memory;
#[path = "sim/graph_pools.rs"]
mod graph_pools;
#[path = "sim/keys.rs"]
mod keys;
#[path = "sim/paused_pools.rs"]
mod paused_pools;
#[path = "sim/pinned.rs"]
mod pinned;
#[path = "sim/refusals.rs"]
mod refusals;
#[path = "sim/simulated.rs"]
mod simulated;
#[path = "sim/suite.rs"]
mod suite;
#[path = "sim/virtual_memory.rs"]
mod virtual_memory;

use std::process::ExitCode;

use accelerator_core::{Accelerator, AllocatorConfig, Backend};
use libtest_mimic::{Arguments, Failed, Trial};

/// Opens a device with these settings.
fn device<B: Backend>(backend: B, settings: &str) -> Result<&'static Accelerator<B>, Failed> {
    Ok(Accelerator::new(backend, 0, AllocatorConfig::default().updated(settings)?)?)
}

fn main() -> ExitCode {
    if let Some(exit) = suite::run_as_child() {
        return exit;
    }
    let trials = [
        simulated::trials(),
        keys::trials(),
        allocator::trials(),
        refusals::trials(),
        graph_pools::trials(),
        paused_pools::trials(),
        pinned::trials(),
        virtual_memory::trials(),
        faulty::trials(),
        faulty_graphs::trials(),
        faulty_virtual_memory::trials(),
        suite::trials(),
    ];
    let trials: Vec<Trial> = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
