//! PyTorch's own Python code on our files. The environment variable `ACCELERATOR_PYTORCH_SOURCES` names the folder of
//! an unpacked wheel, or of the parts that are needed: `torch/cuda/_memory_viz.py` and
//! `torch/distributed/_tools/memory_tracker.py`.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a trial that panics has failed")]

mod pytorch;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = [pytorch::tracker::trials(), pytorch::viz::trials()];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
