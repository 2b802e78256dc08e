//! Written bytes are read back, whatever order the driver chooses for unordered work.

use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::bytes as programs;
use crate::programs::simulated::on_a_device;
use crate::rig::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("bytes::round_trips", &[], || on_a_device::<Cuda>(programs::round_trips)),
        trial("bytes::fills_and_copies", &[], || on_a_device::<Cuda>(programs::fills_and_copies)),
        trial("bytes::pinned", &[], || on_a_device::<Cuda>(programs::pinned)),
        trial("bytes::chains_of_streams::seed_1", &[("CUDA_SIM_SEED", "1")], || {
            on_a_device::<Cuda>(programs::chains_of_streams)
        }),
        trial("bytes::chains_of_streams::seed_2", &[("CUDA_SIM_SEED", "2")], || {
            on_a_device::<Cuda>(programs::chains_of_streams)
        }),
        trial("bytes::chains_of_streams::seed_3", &[("CUDA_SIM_SEED", "3")], || {
            on_a_device::<Cuda>(programs::chains_of_streams)
        }),
    ]
}
