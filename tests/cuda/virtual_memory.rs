//! Address space separate from memory.

use accelerator_core::Backend;
use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::virtual_memory;
use crate::rig::{self, Outcome, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("virtual_memory::one_memory_at_two_addresses", &[], virtual_memory::two_addresses::<Cuda>),
        trial("virtual_memory::grows_in_place", &[], virtual_memory::grows_in_place::<Cuda>),
        trial("virtual_memory::sleep", &[], virtual_memory::sleep::<Cuda>),
        trial("virtual_memory::out_of_memory", &[("CUDA_SIM_MEMORY", "1G")], || {
            virtual_memory::out_of_memory::<Cuda>("cuMemCreate")
        }),
        trial("virtual_memory::a_failed_map_leaves_nothing", &[], || {
            virtual_memory::failed_map::<Cuda>("cuMemSetAccess")
        }),
        trial("virtual_memory::compact", &[("CUDA_SIM_MEMORY", "176M")], virtual_memory::compact::<Cuda>),
        trial("virtual_memory::expandable_segments::seed_1", SEED_1, expandable_segments),
        trial("virtual_memory::expandable_segments::seed_2", SEED_2, expandable_segments),
        trial("virtual_memory::not_offered", &[("CUDA_SIM_FAIL", "cuMemGetAllocationGranularity@*=801")], not_offered),
    ]
}

const SEED_1: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "2")];

fn expandable_segments() -> Outcome {
    virtual_memory::expandable_segments::<Cuda>()?;
    assert!(matches!((rig::calls_of("cuMemAlloc_v2"), rig::calls_of("cuMemCreate")), (0, 4..)));
    Ok(())
}

fn not_offered() -> Outcome {
    let device = device()?;
    assert!(device.backend().virtual_memory().is_none());
    Ok(())
}
