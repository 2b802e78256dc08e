//! Graphs of the core, with memory of private pools.
#![allow(unsafe_code)] // replays graphs

use accelerator_core::{AllocatorConfig, CaptureMode, EventFlags, Graph, MIB};
use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::graphs::joined;
use crate::rig::{self, Outcome, check_all_gone, check_no_graphs, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("replays::use_memory_of_a_private_pool::seed_1", &[("CUDA_SIM_SEED", "1")], private_pool),
        trial("replays::use_memory_of_a_private_pool::seed_2", &[("CUDA_SIM_SEED", "2")], private_pool),
        trial("replays::freed_memory_is_used_again_after_a_join", &[], used_again),
    ]
}

/// Memory that is allocated during a capture is taken from the driver then, and belongs to the graph alone afterwards.
fn private_pool() -> Outcome {
    let device = device()?;
    let [own, other] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let [mut input, mut output] = [MIB; 2].map(|len| device.allocate(len, own).unwrap());
    let mut graph = Graph::<Cuda>::new(device)?;
    let allocated = rig::calls_of("cuMemAlloc_v2");
    graph.capture_begin(own, None, CaptureMode::Global)?;
    let mut work = device.allocate(4 * MIB, own)?;
    work.fill(0, own)?;
    work.copy_from(&device.allocate(4 * MIB, own)?, own)?;
    let mut copy = device.allocate(MIB, own)?;
    copy.copy_from(&input, own)?;
    output.copy_from(&copy, own)?;
    drop((work, copy));
    graph.capture_end()?;
    assert!(rig::calls_of("cuMemAlloc_v2") > allocated);

    let mut beside = device.allocate(4 * MIB, other)?;
    beside.fill(99, other)?;
    for round in 0..10 {
        input.fill(round, own)?;
        // SAFETY: The buffers outside of the pool live until the stream has done the work, and no other stream uses
        // them.
        unsafe { graph.replay(own) }?;
        let (mut read, mut unchanged) = ([0; 10], [0; 10]);
        output.read(0, &mut read, own)?;
        beside.read(0, &mut unchanged, other)?;
        assert_eq!((read, unchanged), ([round; 10], [99; 10]));
    }
    own.synchronize()?;
    drop(graph);
    check_no_graphs();
    drop((input, output, beside));
    check_all_gone(device)
}

/// In a capture, with the setting, a block comes back once the streams that used it are joined.
fn used_again() -> Outcome {
    let device = device()?;
    let reuse = AllocatorConfig::default().updated("graph_capture_record_stream_reuse:True")?;
    device.allocator().set_config(reuse);
    let [own, side] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let [fork, join] = [(); 2].map(|()| device.event(EventFlags::default()));
    let mut graph = Graph::<Cuda>::new(device)?;
    graph.capture_begin(own, None, CaptureMode::Global)?;
    let mut buffer = device.allocate(4 * MIB, own)?;
    buffer.fill(1, own)?;
    joined(&fork, own, side)?;
    buffer.fill(2, side)?;
    join.record(side)?;
    let address = buffer.ptr();
    drop(buffer);
    let another = device.allocate(4 * MIB, own)?;
    assert_ne!(another.ptr(), address, "the side stream may still use it");
    join.wait(own)?;
    let again = device.allocate(4 * MIB, own)?;
    assert_eq!(again.ptr(), address);
    drop((another, again));
    graph.capture_end()?;
    drop(graph);
    check_no_graphs();
    check_all_gone(device)
}
