//! Graphs whose work is kernels.
#![allow(unsafe_code)] // launches graphs

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use accelerator_core::{
    Accelerator, Backend, CaptureMode, DriverErrorKind, Error, EventFlags, ExecutableGraph, Graphs, Stream,
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
            std::thread::sleep(std::time::Duration::from_millis(2));
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
    let told = std::sync::Mutex::new(told);
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
