//! The simulated driver under the real loader. Each trial runs in its own process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a trial that panics has failed")]

mod alone;
mod control;
mod devices;
mod direct;
mod events;
mod faults;
mod kernels;
mod memory;
mod ordering;
mod program;
mod virtual_memory;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        devices::trials(),
        direct::trials(),
        events::trials(),
        faults::trials(),
        kernels::trials(),
        memory::trials(),
        ordering::trials(),
        virtual_memory::trials(),
    ];
    let mut all: Vec<_> = trials.into_iter().flatten().collect();
    if let Some(child) = alone::child() {
        let Some(trial) = all.iter_mut().find(|trial| trial.name == child) else { return ExitCode::FAILURE };
        (trial.run)();
        return ExitCode::SUCCESS;
    }
    let trials = all.into_iter().map(alone::Alone::into_trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
