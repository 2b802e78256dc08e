//! What is written is read back, whatever order the driver chooses for what may run in any.

use accelerator_core::Accelerator;
use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::bytes as programs;
use crate::rig::{Outcome, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("bytes::round_trips", &[], || run(programs::round_trips)),
        trial("bytes::fills_and_copies", &[], || run(programs::fills_and_copies)),
        trial("bytes::pinned", &[], || run(programs::pinned)),
        trial("bytes::chains_of_streams::seed_1", &[("CUDA_SIM_SEED", "1")], || {
            run(programs::chains_of_streams)
        }),
        trial("bytes::chains_of_streams::seed_2", &[("CUDA_SIM_SEED", "2")], || {
            run(programs::chains_of_streams)
        }),
        trial("bytes::chains_of_streams::seed_3", &[("CUDA_SIM_SEED", "3")], || {
            run(programs::chains_of_streams)
        }),
    ]
}

/// Runs the program on the first device, and leaves nothing.
fn run(program: fn(&'static Accelerator<Cuda>) -> Outcome) -> Outcome {
    let device = device()?;
    program(device)?;
    check_all_gone(device)
}
