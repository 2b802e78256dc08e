//! Marks in captures: when freed memory may be used again.

use accelerator_core::{CaptureMode, EventFlags, MIB, Stream};
use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::graphs::{graphs, joined};
use crate::rig::{self, Device, Outcome, check_all_gone, check_no_graphs, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("marks::precede_joined_work", &[], precede_joined_work),
        trial("marks::precede_joined_work_before_cuda_12_3", OLDER, precede_joined_work),
        trial("marks::in_a_long_capture", &[], long_capture),
        trial("marks::in_a_long_capture_before_cuda_12_3", OLDER, long_capture),
        trial("marks::of_no_capture", &[], no_capture),
    ]
}

/// To the backend, a call that is not supported is like one that the driver lacks.
const OLDER: &[(&str, &str)] = &[("CUDA_SIM_FAIL", "cuStreamGetCaptureInfo_v3@*=801,cuGraphGetEdges_v2@*=801")];

fn mark(device: Device, stream: Stream<Cuda>) -> u64 {
    graphs(device).mark(stream.native()).unwrap().expect("the stream has captured something")
}

fn precede_joined_work() -> Outcome {
    let device = device()?;
    let [own, side] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let [fork, early, late] = [(); 3].map(|()| device.event(EventFlags::default()));
    let mut buffer = device.allocate(MIB, own)?;
    let of = |marks: &[u64], stream: Stream<Cuda>| graphs(device).precede(marks, stream.native()).unwrap();
    graphs(device).begin(own.native(), CaptureMode::Global)?;
    assert_eq!(graphs(device).mark(own.native())?, None, "nothing captured yet");
    buffer.fill(1, own)?;
    let first = mark(device, own);
    assert_eq!(of(&[first], own), [true]);
    joined(&fork, own, side)?;
    assert_eq!(of(&[first], side), [true]);
    buffer.fill(2, side)?;
    early.record(side)?;
    let forked = mark(device, side);
    assert_eq!((of(&[first, forked], side), of(&[first, forked], own)), (vec![true, true], vec![true, false]));
    buffer.fill(3, own)?;
    let second = mark(device, own);
    assert_eq!((of(&[second, forked], side), of(&[second, forked], own)), (vec![false, true], vec![true, false]));
    // What the mark depends on was recorded before the mark.
    early.wait(own)?;
    assert_eq!(of(&[forked, second], own), [true, true]);
    buffer.fill(4, side)?;
    let last = mark(device, side);
    assert_eq!(of(&[forked, last], own), [true, false]);
    joined(&late, side, own)?;
    let both = mark(device, own); // after nodes of both streams
    assert_eq!((of(&[last, both], own), of(&[last, both], side)), (vec![true, true], vec![true, false]));
    drop(graphs(device).end(own.native())?); // marks need no join
    check_no_graphs();
    drop(buffer);
    check_all_gone(device)
}

/// More edges than are asked for at first.
fn long_capture() -> Outcome {
    let device = device()?;
    let [own, side] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let mut buffer = device.allocate(MIB, own)?;
    let fork = device.event(EventFlags::default());
    graphs(device).begin(own.native(), CaptureMode::Global)?;
    buffer.fill(0, own)?;
    joined(&fork, own, side)?;
    let early = mark(device, own);
    let mut marks = Vec::new();
    for value in 0..255 {
        buffer.fill(value, own)?;
        marks.push(mark(device, own));
    }
    marks.push(early);
    let preceding = |stream: Stream<Cuda>| graphs(device).precede(&marks, stream.native());
    assert_eq!(preceding(own)?, [true; 256]);
    assert_eq!(preceding(side)?, [vec![false; 255], vec![true]].concat());
    graphs(device).end(own.native())?;
    let newer = ["cuStreamGetCaptureInfo_v3", "cuGraphGetEdges_v2"].map(rig::calls_of);
    let older = rig::calls_of("cuGraphGetEdges");
    assert!(newer.iter().all(|calls| *calls > 0) && (older > 0) == std::env::var_os("CUDA_SIM_FAIL").is_some());
    check_no_graphs();
    drop(buffer);
    check_all_gone(device)
}

fn no_capture() -> Outcome {
    let device = device()?;
    let [own, other] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let mut buffer = device.allocate(MIB, own)?;
    assert_eq!(graphs(device).mark(own.native())?, None);
    assert_eq!(graphs(device).precede(&[1, 2], own.native())?, [false; 2]);
    graphs(device).begin(own.native(), CaptureMode::Relaxed)?;
    buffer.fill(1, own)?;
    let mark = mark(device, own);
    assert_eq!(graphs(device).mark(other.native())?, None);
    assert_eq!(graphs(device).precede(&[mark], other.native())?, [false]);
    assert!(own.synchronize().is_err()); // breaks the capture
    assert_eq!(graphs(device).mark(own.native())?, None);
    assert_eq!(graphs(device).precede(&[mark], own.native())?, [false]);
    assert!(graphs(device).end(own.native()).is_err());
    check_no_graphs();
    drop(buffer);
    check_all_gone(device)
}
