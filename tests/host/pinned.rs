//! Copies from and to pinned memory on streams that run late.

use accelerator_conformance::{Controls, Faulty};
use accelerator_core::{Accelerator, AllocatorConfig, Buffer, GIB, PinnedBuffer, Stream};
use accelerator_host::Host;

type Late = Faulty<Host>;

const LEN: u64 = 1024;

struct Scene {
    pinned: PinnedBuffer<Late>,
    /// On the device. All bytes of the second are 2.
    buffers: [Buffer<Late>; 2],
    late: Stream<Late>,
    other: Stream<Late>,
}

/// All bytes of the pinned buffer are 1. The work of one stream is held.
fn scene() -> Scene {
    let device = Accelerator::new(Faulty::new(Host::new(0, GIB)), 0, AllocatorConfig::default()).unwrap();
    let [late, other] = [device.stream(0).unwrap(), device.stream(0).unwrap()];
    let mut pinned = device.allocate_host(LEN).unwrap();
    pinned.bytes_mut().unwrap().fill(1);
    let mut buffers = [(); 2].map(|()| device.allocate(LEN, other).unwrap());
    for (buffer, value) in buffers.iter_mut().zip([0, 2]) {
        buffer.fill(value, other).unwrap();
    }
    other.synchronize().unwrap();
    device.backend().hold(late.native());
    Scene { pinned, buffers, late, other }
}

/// Lets the held work run, and returns the first byte of a buffer, if all are the same.
fn value(buffer: &Buffer<Late>, Scene { late, other, .. }: &Scene) -> u8 {
    late.backend().release(late.native());
    late.synchronize().unwrap();
    other.synchronize().unwrap();
    let mut bytes = [0; LEN as usize];
    buffer.read(0, &mut bytes, *other).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

#[test]
fn a_copy_into_pinned_memory_waits_for_copies_out_of_it() {
    let mut scene = scene();
    let (late, other) = (scene.late, scene.other);
    scene.buffers[0].copy_from_pinned(0, &scene.pinned, 0..LEN, late).unwrap();
    scene.buffers[1].copy_to_pinned(0..LEN, &mut scene.pinned, 0, other).unwrap();
    assert_eq!(value(&scene.buffers[0], &scene), 1);
    assert_eq!(scene.pinned.bytes().unwrap(), [2; LEN as usize]);
}

#[test]
fn a_copy_out_of_pinned_memory_waits_for_copies_into_it() {
    let mut scene = scene();
    let (late, other) = (scene.late, scene.other);
    scene.buffers[1].copy_to_pinned(0..LEN, &mut scene.pinned, 0, late).unwrap();
    scene.buffers[0].copy_from_pinned(0, &scene.pinned, 0..LEN, other).unwrap();
    assert_eq!(value(&scene.buffers[0], &scene), 2);
}

#[test]
fn a_second_copy_into_pinned_memory_waits_for_the_first() {
    let mut scene = scene();
    let (late, other) = (scene.late, scene.other);
    scene.buffers[1].copy_to_pinned(0..LEN, &mut scene.pinned, 0, late).unwrap();
    scene.buffers[0].copy_to_pinned(0..LEN, &mut scene.pinned, 0, other).unwrap();
    let _ = value(&scene.buffers[0], &scene);
    assert_eq!(scene.pinned.bytes().unwrap(), [0; LEN as usize], "the second copy is the last");
}

/// Waiting forces the held work, so the bytes are those of the copy.
#[test]
fn the_host_sees_the_bytes_of_copies_and_changes_none_that_a_copy_still_needs() {
    let mut scene = scene();
    let late = scene.late;
    scene.buffers[1].copy_to_pinned(0..LEN, &mut scene.pinned, 0, late).unwrap();
    assert_eq!(scene.pinned.bytes().unwrap(), [2; LEN as usize]);
    scene.buffers[0].copy_from_pinned(0, &scene.pinned, 0..LEN, late).unwrap();
    scene.pinned.bytes_mut().unwrap().fill(3);
    assert_eq!(value(&scene.buffers[0], &scene), 2);
}
