//! Two devices.

use std::ffi::c_int;

use accelerator_core::{CaptureMode, Error, Graph, MIB};
use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::peers;
use crate::programs::simulated::Simulated;
use crate::rig::{self, Outcome, check_all_gone, give_back, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("peers::copies::seed_1", SEED_1, peers::copies::<Cuda>),
        trial("peers::copies::seed_2", SEED_2, peers::copies::<Cuda>),
        trial("peers::copies::seed_3", SEED_3, peers::copies::<Cuda>),
        trial("peers::facade::seed_1", SEED_1, facade),
        trial("peers::facade::seed_2", SEED_2, facade),
        trial("peers::access", SEED_1, access),
        trial("peers::wrong_stream", SEED_1, peers::wrong_stream::<Cuda>),
        trial("peers::every_call_in_turn", SEED_1, || peers::every_call_in_turn::<Cuda>(30, true)),
        trial("peers::no_order_and_no_wait", SEED_1, no_order_and_no_wait),
        trial("peers::no_order_in_a_capture", SEED_1, no_order_in_a_capture),
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

/// If the source's stream cannot wait for the copy, nor the host, the source stays as it is until the copy is over.
fn no_order_and_no_wait() -> Outcome {
    let (here, there) = peers::two::<Cuda>()?;
    let (source_stream, stream) = (here.stream(0)?, there.stream(0)?);
    for round in 0..20 {
        let mut source = here.allocate(MIB, source_stream)?;
        let mut destination = there.allocate(MIB, stream)?;
        source.fill(2, source_stream)?;
        rig::fail("cuStreamWaitEvent", 2, Cuda::REFUSED as c_int);
        (1..=4).for_each(|call| rig::fail("cuStreamSynchronize", call, Cuda::REFUSED as c_int));
        rig::fail("cuStreamQuery", 1, Cuda::REFUSED as c_int);
        let copied = destination.copy_from(&source, stream);
        assert!(matches!(copied, Err(Error::Driver { .. })), "round {round}: {copied:?}");
        source.fill(3, source_stream)?;
        source_stream.synchronize()?;
        rig::clear_faults();
        let mut read = vec![0; MIB as usize];
        destination.read(0, &mut read, stream)?;
        assert!(read.iter().all(|byte| *byte == 2), "round {round}: {}", read[0]);
    }
    give_back(here)?;
    check_all_gone(there)
}

/// A copy that is captured does not run, so nothing waits for it: a wait would break the capture, or never end.
fn no_order_in_a_capture() -> Outcome {
    let (here, there) = peers::two::<Cuda>()?;
    let (source_stream, stream) = (here.stream(0)?, there.stream(0)?);
    let source = here.allocate(MIB, source_stream)?;
    let mut destination = there.allocate(MIB, stream)?;
    let mut graph = Graph::new(here)?;
    graph.capture_begin(source_stream, None, CaptureMode::Relaxed)?;
    let waits = ["cuStreamSynchronize", "cuStreamQuery"];
    let before = waits.map(rig::calls_of);
    rig::fail("cuStreamWaitEvent", 2, Cuda::REFUSED as c_int);
    let copied = destination.copy_from(&source, stream);
    assert!(matches!(copied, Err(Error::Driver { .. })), "{copied:?}");
    assert_eq!(waits.map(rig::calls_of), before);
    assert!(stream.is_capturing()?);
    destination.copy_from(&source, stream)?;
    graph.capture_end()?;
    assert!(!stream.is_capturing()?);
    drop((graph, source, destination));
    give_back(here)?;
    check_all_gone(there)
}
