//! Parity with PyTorch: for each trace, our allocator's output equals PyTorch's own, line for line.
#![allow(clippy::expect_used, clippy::panic, reason = "a failing test panics")]

#[path = "parity/pinned.rs"]
mod pinned;
#[path = "parity/recorded.rs"]
mod recorded;

use accelerator_conformance::Sim;
use libtest_mimic::{Arguments, Failed, Trial};

use recorded::Recorded;

fn main() {
    let arguments = Arguments::from_args();
    let classic = ["oracle", "settings", "pools", "pools_expandable", "pools_mixed"]
        .into_iter()
        .flat_map(recorded::whole)
        .chain(recorded::models());
    let device_memory = classic.chain(recorded::expandable());
    let host_memory = recorded::whole("pinned").into_iter();
    let trials = device_memory
        .map(|recorded| trial(recorded, |trace| recorded::replay(trace, |capacity| Ok(Sim::new(capacity)))))
        .chain(host_memory.map(|recorded| trial(recorded, |trace| pinned::replay(&trace))))
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(recorded: Recorded, replay: fn(String) -> Result<String, Failed>) -> Trial {
    Trial::test(recorded.name.clone(), move || recorded.compare(replay))
}
