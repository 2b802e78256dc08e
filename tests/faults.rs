//! The suite for the suite: does it catch the faults that drivers have?
//!
//! Each trial plants one fault in a driver and runs the case that must catch it, in a process of its own. The case must
//! fail, and its message must name the method that broke its contract.

#![expect(clippy::panic, reason = "two of the faults are a panic")]

#[path = "faults/broken/mod.rs"]
mod broken;
#[path = "faults/document.rs"]
mod document;
#[path = "faults/drivers.rs"]
mod drivers;
#[path = "faults/fault.rs"]
mod fault;
#[path = "faults/list.rs"]
mod list;
#[path = "programs/surroundings.rs"]
mod surroundings;
#[path = "faults/trials.rs"]
mod trials;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(exit) = drivers::run_as_child() {
        return exit;
    }
    let trials = [trials::trials(), document::trials()];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
