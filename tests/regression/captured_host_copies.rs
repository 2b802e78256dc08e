//! Copies of host memory on a stream that is being captured. They failed, but the graph had them all the same, and each
//! launch copied from and to memory that the program had only lent for the call.
#![allow(unsafe_code, reason = "replays a graph")]

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelerator_core::{Accelerator, AllocatorConfig, CaptureMode, GIB, Graph};
use accelerator_host::{Host, launch};

#[test]
fn a_copy_that_fails_in_a_capture_is_in_no_graph() {
    let accelerator = Accelerator::new(Host::new(0, GIB), 0, AllocatorConfig::default()).unwrap();
    let stream = accelerator.stream(0).unwrap();
    let mut buffer = accelerator.allocate(4, stream).unwrap();
    buffer.write(0, &[1; 4], stream).unwrap();
    let mut graph = Graph::new(accelerator).unwrap();
    let (mut read, written) = ([7; 4], [9; 4]);
    graph.capture_begin(stream, None, CaptureMode::default()).unwrap();
    assert!(buffer.read(0, &mut read, stream).is_err());
    assert!(buffer.write(0, &written, stream).is_err());
    graph.capture_end().unwrap();

    // SAFETY: The buffer is alive, and no other work uses it.
    unsafe { graph.replay(stream) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read, [7; 4], "the replay wrote into memory that a call had borrowed");
    buffer.read(0, &mut read, stream).unwrap();
    assert_eq!(read, [1; 4], "the replay read memory that a call had borrowed");
}

/// The failed call had taken the use for a reading one, and the bytes were lent while the stream could write them.
#[test]
fn bytes_wait_for_a_use_that_a_failed_call_had_found() {
    let device = Accelerator::new(Host::new(0, GIB), 0, AllocatorConfig::default()).unwrap();
    let [captured, user] = [(); 2].map(|()| device.stream(0).unwrap());
    let mut pinned = device.host_allocator().allocate(64).unwrap();
    [captured, user].iter().for_each(|stream| pinned.record_use(*stream).unwrap());
    let (end, ends) = channel();
    launch(user, (), move |()| ends.recv().unwrap()).unwrap();
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(captured, None, CaptureMode::Relaxed).unwrap();
    assert!(pinned.bytes_mut().is_err());
    graph.capture_end().unwrap();
    thread::scope(|scope| {
        let lent = scope.spawn(|| pinned.bytes().map(drop));
        thread::sleep(Duration::from_millis(100));
        let too_early = lent.is_finished();
        end.send(()).unwrap();
        lent.join().unwrap().unwrap();
        assert!(!too_early, "the stream still worked on them");
    });
}
