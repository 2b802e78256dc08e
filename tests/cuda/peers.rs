//! Two devices.

use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::peers;
use crate::rig::{self, Outcome, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("peers::copies::seed_1", SEED_1, peers::copies::<Cuda>),
        trial("peers::copies::seed_2", SEED_2, peers::copies::<Cuda>),
        trial("peers::copies::seed_3", SEED_3, peers::copies::<Cuda>),
        trial("peers::facade::seed_1", SEED_1, facade),
        trial("peers::facade::seed_2", SEED_2, facade),
        trial("peers::access", SEED_1, access),
        trial("peers::wrong_stream", SEED_1, peers::wrong_stream::<Cuda>),
        trial("peers::every_call_in_turn", SEED_1, || peers::every_call_in_turn::<Cuda>(19)),
    ]
}

const SEED_1: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "2")];
const SEED_3: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "3")];

fn facade() -> Outcome {
    peers::facade::<Cuda>()?;
    assert_eq!(rig::calls_of("cuMemcpyPeerAsync"), 20);
    Ok(())
}

fn access() -> Outcome {
    let (here, there) = peers::two::<Cuda>()?;
    assert!(here.backend().enable_peer_access(there.backend())?);
    let calls = rig::calls();
    assert!(here.backend().enable_peer_access(there.backend())?);
    assert!(here.backend().enable_peer_access(here.backend())?);
    assert_eq!(rig::calls(), calls, "each pair is tried once");
    Ok(())
}
