//! Histories: ours equal PyTorch's, and replaying one gives the recorded snapshot.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a failing test panics")]

#[path = "history/lines.rs"]
mod lines;
#[path = "history/ours.rs"]
mod ours;
#[path = "history/parity.rs"]
mod parity;
#[path = "history/pytorch.rs"]
mod pytorch;
#[path = "history/recorded.rs"]
mod recorded;
#[path = "history/round.rs"]
mod round;

use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let trials = [parity::trials(), round::trials(), pytorch::trials()].into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit();
}
