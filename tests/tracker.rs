//! The memory tracker: the three ways of recording, its summary, and its files.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "tracker/automatic.rs"]
mod automatic;
#[path = "tracker/bad_files.rs"]
mod bad_files;
#[path = "tracker/explicit.rs"]
mod explicit;
#[path = "tracker/files.rs"]
mod files;
#[path = "tracker/layer.rs"]
mod layer;
#[path = "tracker/operators.rs"]
mod operators;
#[path = "tracker/pickles.rs"]
mod pickles;
#[path = "tracker/rig.rs"]
mod rig;
#[path = "tracker/summary.rs"]
mod summary;
#[path = "tracker/traces.rs"]
mod traces;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(exit) = files::run_as_child() {
        return exit;
    }
    let trials = [
        automatic::trials(),
        bad_files::trials(),
        explicit::trials(),
        files::trials(),
        layer::trials(),
        operators::trials(),
        pickles::trials(),
        summary::trials(),
        traces::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
