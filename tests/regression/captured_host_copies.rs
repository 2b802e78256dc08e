//! Copies of host memory on a stream that is being captured. They failed, but the graph had them all the same, and each
//! launch copied from and to memory that the program had only lent for the call.
#![allow(unsafe_code, reason = "replays a graph")]

use accelerator_core::{Accelerator, AllocatorConfig, CaptureMode, GIB, Graph};
use accelerator_host::Host;

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
