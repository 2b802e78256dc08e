//! PyTorch's traces on the simulated driver.

use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::{long, parity};
use crate::recorded;
use crate::rig::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("parity::oracle", ROOM, || parity::all::<Cuda>(recorded::whole("oracle"))),
        trial("parity::settings", ROOM, || parity::all::<Cuda>(recorded::whole("settings"))),
        long(trial("parity::models", ROOM, || parity::all::<Cuda>(recorded::models()))),
        long(trial("parity::expandable", ROOM, || parity::all::<Cuda>(parity::expandable()))),
    ]
}

/// More than any trace needs. The replay sets the actual capacity.
const ROOM: &[(&str, &str)] = &[("CUDA_SIM_MEMORY", "1024G")];
