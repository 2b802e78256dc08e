//! Trials of the CUDA backend beyond conformance, on the simulated driver. Each runs in its own process, which loads
//! that driver regardless of the machine's own.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "cuda/availability.rs"]
mod availability;
#[path = "cuda/beside.rs"]
mod beside;
#[path = "cuda/bytes.rs"]
mod bytes;
#[path = "cuda/capture.rs"]
mod capture;
#[path = "cuda/cudarc.rs"]
mod cudarc;
#[path = "cuda/every_call.rs"]
mod every_call;
#[path = "cuda/exact.rs"]
mod exact;
mod failing;
#[path = "cuda/failures.rs"]
mod failures;
#[path = "cuda/gone.rs"]
mod gone;
#[path = "cuda/graphs.rs"]
mod graphs;
#[path = "cuda/marks.rs"]
mod marks;
#[path = "cuda/parity.rs"]
mod parity;
#[path = "cuda/peers.rs"]
mod peers;
#[path = "programs/mod.rs"]
mod programs;
#[path = "cuda/reach.rs"]
mod reach;
#[path = "parity/recorded.rs"]
mod recorded;
#[path = "cuda/replays.rs"]
mod replays;
#[path = "cuda/rig.rs"]
mod rig;
#[path = "cuda/suite.rs"]
mod suite;
#[path = "cuda/virtual_memory.rs"]
mod virtual_memory;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        availability::trials(),
        beside::trials(),
        bytes::trials(),
        capture::trials(),
        cudarc::trials(),
        every_call::trials(),
        exact::trials(),
        failures::trials(),
        gone::trials(),
        graphs::trials(),
        marks::trials(),
        parity::trials(),
        peers::trials(),
        reach::trials(),
        replays::trials(),
        suite::trials(),
        virtual_memory::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
