//! Graphs whose work is kernels.
#![allow(unsafe_code)] // launches graphs

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use accelerator_core::{
    Accelerator, Backend, CaptureMode, DriverErrorKind, Error, EventFlags, ExecutableGraph, Graph, Graphs, Stream,
};
use accelerator_host::{Host, launch, launch_repeatable};

use super::host;

fn begin(host: &'static Accelerator<Host>, stream: Stream<Host>) -> &'static dyn Graphs<Host> {
    let graphs = host.backend().graphs().unwrap();
    graphs.begin(stream.native(), CaptureMode::default()).unwrap();
    graphs
}

/// Launches a graph whose buffers are all still allocated.
fn replay(graph: &dyn ExecutableGraph<Host>, stream: Stream<Host>) {
    // SAFETY: The callers keep the buffers until the stream has done the work.
    unsafe { graph.launch(stream.native()) }.unwrap();
}

#[test]
fn kernels_run_at_each_launch_on_what_the_memory_holds_then() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(64, stream).unwrap();
    let mut y = host.allocate(64, stream).unwrap();
    x.slice_mut::<u32>().unwrap().write(&[1; 16], stream).unwrap();
    stream.synchronize().unwrap();

    let graphs = begin(host, stream);
    for _ in 0..2 {
        launch_repeatable(stream, (x.slice::<u32>().unwrap(), y.slice_mut::<u32>().unwrap()), |(x, y)| {
            x.iter().zip(y).for_each(|(x, y)| *y += x);
        })
        .unwrap();
    }
    let graph = graphs.end(stream.native()).unwrap();
    assert_eq!(y.slice::<u32>().unwrap().to_vec(stream).unwrap(), [0; 16], "captured, so not run");
    replay(&*graph, stream);
    x.slice_mut::<u32>().unwrap().write(&[10; 16], stream).unwrap();
    replay(&*graph, stream);
    assert_eq!(y.slice::<u32>().unwrap().to_vec(stream).unwrap(), [2 + 20; 16]);
}

#[test]
fn a_closure_that_runs_once_is_refused_and_the_capture_goes_on() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(8, stream).unwrap();
    let graphs = begin(host, stream);
    launch_repeatable(stream, x.slice_mut::<u8>().unwrap(), |x| x.fill(3)).unwrap();
    let refused = launch(stream, x.slice_mut::<u8>().unwrap(), |x| x.fill(4)).unwrap_err();
    let Error::Driver { source, .. } = refused else { panic!("{refused}") };
    assert!(source.kind == DriverErrorKind::InvalidArgument && source.name.contains("repeatable"), "{source}");
    let graph = graphs.end(stream.native()).unwrap();
    replay(&*graph, stream);
    assert_eq!(x.slice::<u8>().unwrap().to_vec(stream).unwrap(), [3; 8]);
}

#[test]
fn a_panic_in_a_graph_fails_the_next_synchronize_and_no_other_work() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(8, stream).unwrap();
    let graphs = begin(host, stream);
    launch_repeatable(stream, (), |()| panic!("this panic is part of the test")).unwrap();
    launch_repeatable(stream, x.slice_mut::<u8>().unwrap(), |x| x.fill(5)).unwrap();
    let graph = graphs.end(stream.native()).unwrap();
    for _ in 0..2 {
        replay(&*graph, stream);
        let error = stream.synchronize().unwrap_err().to_string();
        assert!(error.contains("a kernel panicked"), "{error}");
        assert_eq!(x.slice::<u8>().unwrap().to_vec(stream).unwrap(), [5; 8]);
        x.fill(0, stream).unwrap();
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    #[expect(clippy::panic, reason = "it is part of the test")]
    fn drop(&mut self) {
        panic!("this panic is part of the test");
    }
}

/// Captures a kernel that first does something, and whose closure panics when it is dropped.
fn capture_bomb(stream: Stream<Host>, work: impl Fn() + Send + Sync + 'static) {
    let bomb = Bomb;
    let kernel = move |()| {
        let _bomb = &bomb;
        work();
    };
    launch_repeatable(stream, (), kernel).unwrap();
}

/// Fails if the stream does not do its work soon.
fn check_works(host: &'static Accelerator<Host>, stream: Stream<Host>) {
    let (tell, told) = mpsc::channel();
    let worker = thread::spawn(move || {
        let mut x = host.allocate(8, stream).unwrap();
        launch(stream, x.slice_mut::<u8>().unwrap(), |x| x.fill(7)).unwrap();
        tell.send(x.slice::<u8>().unwrap().to_vec(stream).unwrap()).unwrap();
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(vec![7; 8]));
    worker.join().unwrap();
}

#[test]
fn a_closure_that_panics_when_it_is_dropped_ends_no_stream() {
    let host = host();
    let stream = host.default_stream();
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let graphs = begin(host, stream);
    capture_bomb(stream, move || wait.lock().unwrap().recv().unwrap());
    capture_bomb(stream, || ());
    let graph = graphs.end(stream.native()).unwrap();
    replay(&*graph, stream);
    drop(graph); // from here on, the stream is the last to have the closures
    go.send(()).unwrap();
    check_works(host, stream);

    let graphs = begin(host, stream);
    capture_bomb(stream, || ());
    drop(graphs.end(stream.native()).unwrap());
    check_works(host, stream);
}

#[test]
fn a_capture_whose_closures_panic_when_they_are_dropped_ends() {
    let host = host();
    let (stream, side) = (host.default_stream(), host.stream(0).unwrap());
    let mut graph = Graph::new(host).unwrap();
    for is_joined in [false, true] {
        graph.capture_begin(stream, None, CaptureMode::default()).unwrap();
        side.wait_stream(stream).unwrap();
        capture_bomb(side, || ());
        if is_joined {
            stream.wait_stream(side).unwrap();
        }
        let ended = graph.capture_end();
        assert_eq!(ended.is_ok(), is_joined, "{ended:?}");
        let captures = [stream, side].map(|stream| host.backend().is_capturing(stream.native()));
        assert_eq!(captures, [Ok(false); 2]);
        check_works(host, side);
        check_works(host, stream);
    }
    graph.reset().unwrap();
    host.allocator().empty_cache().unwrap();
    assert_eq!(host.allocator().statistics().reserved_bytes.all.current, 0);
}

#[test]
fn launches_of_one_graph_never_overlap_and_those_of_two_may() {
    let host = host();
    let (stream, side) = (host.default_stream(), host.stream(0).unwrap());
    let (running, overlaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let graphs = begin(host, stream);
    launch_repeatable(stream, (), {
        let (running, overlaps) = (Arc::clone(&running), Arc::clone(&overlaps));
        move |()| {
            overlaps.fetch_add(u32::from(running.swap(true, Ordering::SeqCst)), Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
        }
    })
    .unwrap();
    launch_repeatable(stream, (), move |()| running.store(false, Ordering::SeqCst)).unwrap();
    let graph = graphs.end(stream.native()).unwrap();
    for _ in 0..10 {
        replay(&*graph, stream);
        replay(&*graph, side);
    }
    stream.synchronize().unwrap();
    side.synchronize().unwrap();
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);

    // One graph waits for the other, which is launched later: they run at the same time.
    let (tell, told) = mpsc::sync_channel(1);
    let told = Mutex::new(told);
    let capture = |kernel: Box<dyn Fn() + Send + Sync>| {
        let graphs = begin(host, stream);
        launch_repeatable(stream, (), move |()| kernel()).unwrap();
        graphs.end(stream.native()).unwrap()
    };
    let waits = capture(Box::new(move || told.lock().unwrap().recv().unwrap()));
    let tells = capture(Box::new(move || tell.send(()).unwrap()));
    replay(&*waits, stream);
    replay(&*tells, side);
    stream.synchronize().unwrap();
}

#[test]
fn a_graph_outlives_the_events_that_it_was_captured_with() {
    let host = host();
    let (stream, side) = (host.default_stream(), host.stream(0).unwrap());
    let mut x = host.allocate(8, stream).unwrap();
    x.fill(1, stream).unwrap();
    let event = host.backend().event(EventFlags::default()).unwrap();
    let backend = host.backend();
    let graphs = begin(host, stream);
    backend.record(&event, stream.native()).unwrap();
    backend.wait(side.native(), &event).unwrap();
    launch_repeatable(side, x.slice_mut::<u8>().unwrap(), |x| x.iter_mut().for_each(|x| *x *= 2)).unwrap();
    backend.record(&event, side.native()).unwrap();
    backend.wait(stream.native(), &event).unwrap();
    launch_repeatable(stream, x.slice_mut::<u8>().unwrap(), |x| x.iter_mut().for_each(|x| *x += 1)).unwrap();
    let graph = graphs.end(stream.native()).unwrap();
    assert_eq!(backend.is_complete(&event).unwrap_err().kind, DriverErrorKind::InvalidArgument);
    backend.record(&event, side.native()).unwrap();
    backend.wait_host(&event).unwrap();
    drop(event);
    replay(&*graph, stream);
    replay(&*graph, stream);
    drop(graph);
    assert_eq!(x.slice::<u8>().unwrap().to_vec(stream).unwrap(), [7; 8]);
}
