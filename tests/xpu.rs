//! The XPU backend beyond conformance: on Intel's own driver without hardware, and on the simulated driver under the
//! loader's checks. Each trial runs in its own process, because drivers are selected when a process starts.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "xpu/availability.rs"]
mod availability;
#[path = "xpu/bytes.rs"]
mod bytes;
#[path = "xpu/control.rs"]
mod control;
#[path = "xpu/events.rs"]
mod events;
#[path = "xpu/every_call.rs"]
mod every_call;
mod failing;
#[path = "xpu/failures.rs"]
mod failures;
#[path = "xpu/graph_failures.rs"]
mod graph_failures;
#[path = "xpu/graphs.rs"]
mod graphs;
#[path = "xpu/lost.rs"]
mod lost;
#[path = "xpu/memory.rs"]
mod memory;
#[path = "xpu/native.rs"]
mod native;
#[path = "xpu/numbers.rs"]
mod numbers;
#[path = "xpu/operators.rs"]
mod operators;
#[path = "xpu/parity.rs"]
mod parity;
#[path = "xpu/peers.rs"]
mod peers;
#[path = "programs/mod.rs"]
mod programs;
#[path = "xpu/raw.rs"]
mod raw;
#[path = "parity/recorded.rs"]
mod recorded;
#[path = "xpu/rig.rs"]
mod rig;
#[path = "xpu/suite.rs"]
mod suite;
#[path = "xpu/virtual_memory.rs"]
mod virtual_memory;
#[path = "xpu/whole.rs"]
mod whole;
#[path = "xpu/without_hardware.rs"]
mod without_hardware;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        availability::trials(),
        bytes::trials(),
        events::trials(),
        every_call::trials(),
        failures::trials(),
        graph_failures::trials(),
        graphs::trials(),
        lost::trials(),
        memory::trials(),
        native::trials(),
        operators::trials(),
        parity::trials(),
        peers::trials(),
        suite::trials(),
        virtual_memory::trials(),
        without_hardware::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
