//! Frees of blocks that streams use, while another thread does something else.

use std::num::NonZeroU64;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, CaptureMode, Graph, MIB, MemPoolId, MemPoolRequests, Stream,
};
use accelerator_host::Host;

/// A free blocked inside the driver kept other threads from finding memory that had become free.
#[test]
fn memory_is_found_while_another_thread_records_for_its_free() {
    let device = Accelerator::new(Faulty::new(Sim::new(1 << 30)), 0, AllocatorConfig::default()).unwrap();
    let allocator = device.allocator();
    let [own, others, user] = [(); 3].map(|()| device.stream(0).unwrap());
    let [used, slow] = [own, others].map(|stream| {
        let block = allocator.allocate(NonZeroU64::new(20 * MIB).unwrap(), stream).unwrap();
        allocator.record_use(&block, user).unwrap();
        block
    });
    allocator.free(used).unwrap(); // its use is over at once, but has not been noticed
    let reserved = device.backend().used();
    let gate = device.backend().gate(Call::Record);
    thread::scope(|scope| {
        let freeing = scope.spawn(move || allocator.free(slow).unwrap());
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let again = allocator.allocate(NonZeroU64::new(20 * MIB).unwrap(), own).unwrap();
        gate.open();
        freeing.join().unwrap();
        allocator.free(again).unwrap();
    });
    assert_eq!(device.backend().used(), reserved, "the driver was called although memory was free");
}

/// Ends a capture.
type End = Box<dyn FnOnce()>;

/// Frees a block that a stream used, while another thread begins to capture that stream: between the question whether
/// it is captured and the record of the event. An event in the capture would never be complete.
fn a_capture_begins_during_a_free(begin: impl FnOnce(&'static Accelerator<Faulty<Sim>>, Stream<Faulty<Sim>>) -> End) {
    let device = Accelerator::new(Faulty::new(Sim::new(1 << 30)), 0, AllocatorConfig::default()).unwrap();
    let allocator = device.allocator();
    let [own, user] = [(); 2].map(|()| device.stream(0).unwrap());
    let block = allocator.allocate(NonZeroU64::new(20 * MIB).unwrap(), own).unwrap();
    allocator.record_use(&block, user).unwrap();
    let gate = device.backend().gate(Call::Record);
    let end = thread::scope(|scope| {
        let freeing = scope.spawn(move || allocator.free(block).unwrap());
        assert!(gate.wait_reached(Duration::from_secs(10)));
        let end = begin(device, user);
        gate.open();
        freeing.join().unwrap();
        end
    });
    // During the capture, nothing asks about an event of it.
    let other = allocator.allocate(NonZeroU64::new(20 * MIB).unwrap(), own).unwrap();
    allocator.free(other).unwrap();
    end();
    allocator.empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

#[test]
fn a_free_records_nothing_in_a_capture_that_begins_meanwhile() {
    a_capture_begins_during_a_free(|device, stream| {
        let mut graph = Graph::new(device).unwrap();
        graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
        Box::new(move || graph.capture_end().unwrap())
    });
}

/// PyTorch routes requests to the graph's pool, and then captures without a `Graph` of ours.
#[test]
fn a_free_records_nothing_in_a_capture_by_other_means() {
    a_capture_begins_during_a_free(|device, stream| {
        let (allocator, graphs) = (device.allocator(), device.backend().graphs().unwrap());
        let pool = MemPoolId::next_graph();
        let route = allocator.begin_allocate_to_pool(pool, MemPoolRequests::Stream(stream)).unwrap();
        graphs.begin(stream.native(), CaptureMode::Relaxed).unwrap();
        Box::new(move || {
            allocator.end_allocate_to_pool(route);
            drop(graphs.end(stream.native()).unwrap());
        })
    });
}

type OnHost = Accelerator<Faulty<Host>>;
type HostStream = Stream<Faulty<Host>>;

fn on_host() -> (&'static OnHost, [HostStream; 2]) {
    let device = Accelerator::new(Faulty::new(Host::new(0, 64 * MIB)), 0, AllocatorConfig::default()).unwrap();
    (device, [(); 2].map(|()| device.stream(0).unwrap()))
}

/// Begins to capture the stream while another thread records the end of a copy there. Returns the graph.
fn a_capture_begins_during(
    device: &'static OnHost,
    stream: HostStream,
    copy: impl FnOnce() + Send,
) -> Graph<Faulty<Host>> {
    let mut graph = Graph::new(device).unwrap();
    let gate = device.backend().gate(Call::Record);
    thread::scope(|scope| {
        let copying = scope.spawn(copy);
        assert!(gate.wait_reached(Duration::from_secs(10)));
        graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
        gate.open();
        copying.join().unwrap();
    });
    graph
}

/// A copy of pinned memory records an event, too. Every request for pinned memory failed from then on.
#[test]
fn a_copy_records_nothing_in_a_capture_that_begins_meanwhile() {
    let (device, [stream, _]) = on_host();
    let mut buffer = device.allocate(4096, stream).unwrap();
    let pinned = device.allocate_host(4096).unwrap();
    let copy = || buffer.copy_from_pinned(0, &pinned, 0..4096, stream).unwrap();
    let mut graph = a_capture_begins_during(device, stream, copy);
    drop(pinned);
    graph.capture_end().unwrap();
    drop(device.allocate_host(4096).unwrap());
    stream.synchronize().unwrap();
    device.host_allocator().empty_cache().unwrap();
    assert_eq!(device.host_allocator().statistics().active_bytes.current, 0);
}

/// Holds up the stream. Returns what lets it go on.
fn hold_up(device: &'static OnHost, stream: HostStream) -> Sender<()> {
    let (end, ended) = channel::<()>();
    let slow = move || ended.recv().unwrap_or_default();
    device.backend().inner().run(stream.native().inner(), &[], slow).unwrap();
    end
}

/// Such a copy has no event, so other streams did not wait for it.
#[test]
fn a_copy_is_ordered_behind_one_during_which_a_capture_began() {
    let (device, [stream, other]) = on_host();
    let mut source = device.allocate(4096, stream).unwrap();
    let mut target = device.allocate(4096, other).unwrap();
    source.fill(7, stream).unwrap();
    let mut pinned = device.allocate_host(4096).unwrap();
    pinned.bytes_mut().unwrap().fill(1);
    let end = hold_up(device, stream);
    let write = || source.copy_to_pinned(0..4096, &mut pinned, 0, stream).unwrap();
    a_capture_begins_during(device, stream, write).capture_end().unwrap();
    target.copy_from_pinned(0, &pinned, 0..4096, other).unwrap();
    thread::sleep(Duration::from_millis(20)); // in which a copy that waits for nothing is over
    end.send(()).unwrap();
    let mut bytes = [0; 4096];
    target.read(0, &mut bytes, other).unwrap();
    assert_eq!(bytes, [7; 4096]);
}

#[test]
fn a_copy_overwrites_nothing_that_one_reads_during_which_a_capture_began() {
    let (device, [stream, other]) = on_host();
    let mut source = device.allocate(4096, other).unwrap();
    let mut target = device.allocate(4096, stream).unwrap();
    source.fill(7, other).unwrap();
    let mut pinned = device.allocate_host(4096).unwrap();
    pinned.bytes_mut().unwrap().fill(1);
    let end = hold_up(device, stream);
    let read = || target.copy_from_pinned(0, &pinned, 0..4096, stream).unwrap();
    a_capture_begins_during(device, stream, read).capture_end().unwrap();
    let mut reader = device.allocate(4096, other).unwrap();
    reader.copy_from_pinned(0, &pinned, 0..4096, other).unwrap();
    assert_eq!(device.backend().calls().of(Call::Wait), 0, "copies that read need no order");
    source.copy_to_pinned(0..4096, &mut pinned, 0, other).unwrap();
    thread::sleep(Duration::from_millis(20)); // in which a copy that waits for nothing is over
    end.send(()).unwrap();
    let mut bytes = [0; 4096];
    target.read(0, &mut bytes, stream).unwrap();
    assert_eq!(bytes, [1; 4096]);
}

/// A mutant kept the event of each copy until the memory was next accessed. No test saw it.
#[test]
fn copies_on_one_stream_take_no_more_events() {
    let (device, [stream, _]) = on_host();
    let mut pinned = device.allocate_host(512).unwrap();
    let mut buffer = device.allocate(512, stream).unwrap();
    let mut copy = || {
        buffer.copy_from_pinned(0, &pinned, 0..512, stream).unwrap();
        buffer.copy_to_pinned(0..512, &mut pinned, 0, stream).unwrap();
    };
    copy();
    let made = device.backend().calls().of(Call::Event);
    (0..10).for_each(|_| copy());
    assert_eq!(device.backend().calls().of(Call::Event), made);
}
