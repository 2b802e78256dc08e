//! Address space and memory apart.

use accelerator_core::Backend;
use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::virtual_memory;
use crate::rig::{self, Outcome, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("virtual_memory::one_memory_at_two_addresses", &[], two_addresses),
        trial("virtual_memory::grows_in_place", &[], grows_in_place),
        trial("virtual_memory::out_of_memory", &[("CUDA_SIM_MEMORY", "1G")], out_of_memory),
        trial("virtual_memory::a_failed_map_leaves_nothing", &[], failed_map),
        trial("virtual_memory::compact", &[("CUDA_SIM_MEMORY", "176M")], compact),
        trial("virtual_memory::expandable_segments::seed_1", SEED_1, expandable_segments),
        trial("virtual_memory::expandable_segments::seed_2", SEED_2, expandable_segments),
        trial(
            "virtual_memory::not_offered",
            &[("CUDA_SIM_FAIL", "cuMemGetAllocationGranularity@*=801")],
            not_offered,
        ),
    ]
}

const SEED_1: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "2")];

fn two_addresses() -> Outcome {
    virtual_memory::two_addresses(&Cuda::open(0)?)?;
    nothing_left()
}

fn grows_in_place() -> Outcome {
    virtual_memory::grows_in_place(&Cuda::open(0)?)?;
    nothing_left()
}

fn out_of_memory() -> Outcome {
    virtual_memory::out_of_memory(&Cuda::open(0)?, "cuMemCreate")?;
    nothing_left()
}

fn failed_map() -> Outcome {
    virtual_memory::failed_map(&Cuda::open(0)?, "cuMemSetAccess", || rig::fail("cuMemSetAccess", 1, 1))?;
    nothing_left()
}

fn compact() -> Outcome {
    virtual_memory::compact(Cuda::open(0)?)?;
    nothing_left()
}

fn expandable_segments() -> Outcome {
    virtual_memory::expandable_segments(Cuda::open(0)?, Cuda::open(1)?)?;
    assert!(matches!((rig::calls_of("cuMemAlloc_v2"), rig::calls_of("cuMemCreate")), (0, 4..)));
    nothing_left()
}

fn not_offered() -> Outcome {
    let device = device()?;
    assert!(device.backend().virtual_memory().is_none());
    Ok(())
}

fn nothing_left() -> Outcome {
    assert_eq!((rig::live_reservations(), rig::live_pages(), rig::live_mappings()), (0, 0, 0));
    Ok(())
}
