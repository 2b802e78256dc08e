//! Snapshots as PyTorch writes and reads them: its own files, and old, damaged, hostile and huge ones.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a trial that panics has failed")]

#[path = "pytorch_files/ages.rs"]
mod ages;
mod cases;
#[path = "pytorch_files/damage.rs"]
mod damage;
#[path = "pytorch_files/foreign.rs"]
mod foreign;
#[path = "pytorch_files/hostile.rs"]
mod hostile;
#[path = "pytorch_files/limits.rs"]
mod limits;
#[path = "pytorch_files/made.rs"]
mod made;
#[path = "pytorch_files/operations.rs"]
mod operations;
#[path = "pytorch/python.rs"]
mod python;
#[path = "pytorch_files/random.rs"]
mod random;
#[path = "pytorch_files/real.rs"]
mod real;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [
        real::trials(),
        ages::trials(),
        foreign::trials(),
        hostile::trials(),
        damage::trials(),
        limits::trials(),
        random::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
