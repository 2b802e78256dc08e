//! Frees in captures, and the pools that graphs hold.

use std::num::NonZeroU64;
use std::sync::mpsc::channel;
use std::thread;

use accelerator_conformance::Sim;
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, CaptureMode, Error, Graph, Keep, MIB, MemPool, MemPoolId, MemPoolOptions,
    MemPoolRequests, Stream,
};
use accelerator_host::{Host, launch};

fn device() -> &'static Accelerator<Sim> {
    let config = AllocatorConfig::default().updated("graph_capture_record_stream_reuse:True").unwrap();
    Accelerator::new(Sim::new(1 << 30), 0, config).unwrap()
}

fn active(device: &Accelerator<Sim>) -> i64 {
    device.allocator().statistics().active_bytes.all.current
}

fn begin(device: &'static Accelerator<Sim>, stream: Stream<Sim>, pool: MemPoolId) -> Graph<Sim> {
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(stream, Some(pool), CaptureMode::Relaxed).unwrap();
    graph
}

/// The block was free as soon as the other capture ended, although streams of this one had not joined.
#[test]
fn the_end_of_a_capture_ends_no_free_of_another_in_the_same_pool() {
    let device = device();
    let allocator = device.allocator();
    let [one, other, side] = [(); 3].map(|()| device.stream(0).unwrap());
    let pool = MemPoolId::next_user();
    allocator.retain_pool(pool).unwrap();
    let mut first = begin(device, one, pool);
    let mut second = begin(device, other, pool);
    side.wait_stream(other).unwrap();
    let block = allocator.allocate(NonZeroU64::new(MIB).unwrap(), other).unwrap();
    allocator.record_use(&block, side).unwrap();
    allocator.free(block).unwrap();
    assert_eq!(active(device), MIB as i64);
    first.capture_end().unwrap();
    assert_eq!(active(device), MIB as i64, "the other capture goes on");
    other.wait_stream(side).unwrap();
    second.capture_end().unwrap();
    drop(allocator.allocate(NonZeroU64::new(512).unwrap(), one).map(|block| allocator.free(block)));
    assert_eq!(active(device), 0);
}

/// The graph orders what a stream captures after what the other captured, but not after the other's earlier work.
#[test]
fn a_use_from_before_a_capture_is_awaited_although_its_stream_joins() {
    let device = device();
    let allocator = device.allocator();
    let [stream, user] = [(); 2].map(|()| device.stream(0).unwrap());
    let pool = MemPoolId::next_user();
    allocator.retain_pool(pool).unwrap();
    let block = {
        let route = allocator.begin_allocate_to_pool(pool, MemPoolRequests::All).unwrap();
        let block = allocator.allocate(NonZeroU64::new(MIB).unwrap(), stream).unwrap();
        allocator.end_allocate_to_pool(route);
        block
    };
    allocator.record_use(&block, user).unwrap();
    let mut graph = begin(device, stream, pool);
    let fill = |on| device.allocate(512, on).unwrap().fill(1, on).unwrap();
    fill(stream);
    user.wait_stream(stream).unwrap();
    fill(user);
    allocator.free(block).unwrap();
    stream.wait_stream(user).unwrap();
    fill(stream);
    assert!(active(device) >= MIB as i64, "work of before the capture may still use the block");
    // The end of a use that the graph does order is not that of the other.
    let block = allocator.allocate(NonZeroU64::new(MIB).unwrap(), stream).unwrap();
    allocator.record_use(&block, user).unwrap();
    allocator.free(block).unwrap();
    assert_eq!(active(device), 2 * MIB as i64);
    stream.wait_stream(user).unwrap();
    fill(stream);
    assert_eq!(active(device), MIB as i64);
    graph.capture_end().unwrap();
}

/// A mutant let the end of one use stand for that of another. No test saw it.
#[test]
fn a_captured_free_takes_effect_only_after_the_uses_of_all_streams() {
    let device = device();
    let allocator = device.allocator();
    let [stream, first, second] = [(); 3].map(|()| device.stream(0).unwrap());
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
    let mut buffer = device.allocate(512, stream).unwrap();
    let block = allocator.allocate(NonZeroU64::new(MIB).unwrap(), stream).unwrap();
    buffer.fill(1, stream).unwrap();
    for user in [first, second] {
        user.wait_stream(stream).unwrap();
        buffer.fill(1, user).unwrap();
        allocator.record_use(&block, user).unwrap();
    }
    allocator.free(block).unwrap();
    let active_after = |user| {
        stream.wait_stream(user).unwrap();
        drop(device.allocate(512, stream).unwrap());
        active(device)
    };
    assert!(active_after(first) >= MIB as i64, "the other stream still uses the block");
    assert!(active_after(second) < MIB as i64);
    drop(buffer);
    graph.capture_end().unwrap();
}

/// The memory went back when that thread had done with its pool.
#[test]
fn a_graph_holds_a_pool_to_which_another_thread_led_its_requests() {
    let device = device();
    let stream = device.stream(0).unwrap();
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
    let route = thread::scope(|scope| {
        let begun = scope.spawn(|| device.allocator().begin_allocate_to_pool(pool.id(), MemPoolRequests::All).unwrap());
        begun.join().unwrap()
    });
    drop(device.allocate(MIB, stream).unwrap());
    device.allocator().end_allocate_to_pool(route);
    graph.capture_end().unwrap();
    assert!(matches!(pool.trim(), Err(Error::MemPool { .. })), "a replay may use its free memory");
    graph.reset().unwrap();
    pool.trim().unwrap();
    assert_eq!(device.backend().used(), 0);
}

/// A mutant launched the graph all the same. No test saw it.
#[test]
fn a_graph_is_not_replayed_while_its_pool_is_paused() {
    let device = device();
    let stream = device.stream(0).unwrap();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let mut graph = begin(device, stream, pool.id());
    device.allocate(MIB, stream).unwrap().fill(1, stream).unwrap();
    graph.capture_end().unwrap();
    // SAFETY: The graph only writes memory of its pool, in which nothing else is.
    let replay = || unsafe { graph.replay(stream) };
    let _ = pool.pause(Keep::Nothing).unwrap();
    assert!(matches!(replay(), Err(Error::MemPool { .. })), "its memory is not mapped");
    let _ = pool.resume().unwrap();
    replay().unwrap();
    stream.synchronize().unwrap();
}

/// A use noted in a capture may be meant for work that comes after it, which is then awaited by nothing else.
#[test]
fn a_use_that_outlives_its_capture_is_awaited() {
    let device = Accelerator::new(Host::new(0, 64 * MIB), 0, AllocatorConfig::default()).unwrap();
    let [stream, other] = [(); 2].map(|()| device.stream(0).unwrap());
    let buffer = device.allocate(MIB, device.default_stream()).unwrap();
    let mut first = Graph::new(device).unwrap();
    first.capture_begin(stream, None, CaptureMode::Relaxed).unwrap();
    drop(buffer.begin_use(stream).unwrap());
    first.capture_end().unwrap();
    let (end, ended) = channel::<()>();
    launch(stream, (), move |()| ended.recv().unwrap_or_default()).unwrap(); // stands for work with the buffer
    let mut second = Graph::new(device).unwrap();
    second.capture_begin(other, None, CaptureMode::Relaxed).unwrap();
    drop(buffer);
    second.capture_end().unwrap();
    let active = || device.allocator().statistics().active_bytes.all.current;
    drop(device.allocate(512, device.default_stream()).unwrap()); // polls
    assert_eq!(active(), MIB as i64, "the work goes on");
    end.send(()).unwrap();
    stream.synchronize().unwrap();
    drop(device.allocate(512, device.default_stream()).unwrap());
    assert_eq!(active(), 0);
}

/// Such a capture was not among those underway, so it counted as over.
#[test]
fn a_free_in_a_capture_by_other_means_waits_while_a_graph_is_captured_too() {
    let device = device();
    let (allocator, graphs) = (device.allocator(), device.backend().graphs().unwrap());
    let [stream, side, other] = [(); 3].map(|()| device.stream(0).unwrap());
    let mut graph = Graph::new(device).unwrap();
    graph.capture_begin(other, None, CaptureMode::Relaxed).unwrap();
    let pool = MemPoolId::next_graph();
    let route = allocator.begin_allocate_to_pool(pool, MemPoolRequests::Stream(stream)).unwrap();
    graphs.begin(stream.native(), CaptureMode::Relaxed).unwrap();
    let before = device.set_current_stream(stream).unwrap();
    side.wait_stream(stream).unwrap();
    let block = allocator.allocate(NonZeroU64::new(MIB).unwrap(), stream).unwrap();
    allocator.record_use(&block, side).unwrap();
    allocator.free(block).unwrap();
    drop(device.allocate(512, device.default_stream()).unwrap()); // polls
    assert_eq!(active(device), MIB as i64, "the captured use may come at any time");
    device.set_current_stream(before).unwrap();
    stream.wait_stream(side).unwrap();
    drop(graphs.end(stream.native()).unwrap());
    allocator.end_allocate_to_pool(route);
    graph.capture_end().unwrap();
    drop(device.allocate(512, device.default_stream()).unwrap());
    assert_eq!(active(device), 0);
}
