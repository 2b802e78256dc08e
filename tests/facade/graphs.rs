//! Graphs, captured and replayed on the host.
#![allow(unsafe_code)] // replays

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use accelerator::core::DevicePtr;
use accelerator::host::Host;
use accelerator::memory::{self, memory_reserved};
use accelerator::{
    Accelerator, Buffer, CaptureMode, CaptureOptions, Error, Graph, Stream, StreamGuard, StreamId,
    current_device_index, current_stream, empty_cache, generate_graph_pool_handle, graph, graph_pool_handle,
    is_current_stream_capturing, set_stream,
};

use crate::process::processes;

fn address(buffer: &Buffer) -> u64 {
    buffer.typed::<Host>().unwrap().ptr().unwrap().trace_address()
}

fn replay(graph: &Graph) -> accelerator::Result<()> {
    // SAFETY: The tests keep the buffers that their graphs use, and use them on one stream at a time.
    unsafe { graph.replay() }
}

processes! { on_host:
    fn captured_work_runs_when_the_graph_is_replayed() {
        let mut buffer = Buffer::from_slice(&[1u8; 64], None)?;
        let mut fills = Graph::new(None)?;
        let capture = graph(&mut fills, CaptureOptions::default())?;
        assert!(is_current_stream_capturing()? && capture.stream().is_capturing()?);
        assert_eq!(current_stream(None)?, capture.stream());
        buffer.fill(2)?;
        capture.end()?;
        assert!(!is_current_stream_capturing()?);
        assert_eq!(current_stream(None)?.id(), StreamId::DEFAULT);
        assert_eq!(buffer.to_vec::<u8>()?, [1; 64]);
        for _ in 0..2 {
            replay(&fills)?;
            assert_eq!(buffer.to_vec::<u8>()?, [2; 64]);
            buffer.fill(3)?;
        }
        fills.upload()?;
        assert_eq!(fills.typed::<Host>()?.pool(), fills.pool());
    }

    fn a_capture_that_is_dropped_is_given_up() {
        let mut abandoned = Graph::new(1)?;
        let mut capture_and_panic = || {
            let _capture = graph(&mut abandoned, CaptureOptions::default()).unwrap();
            std::panic::resume_unwind(Box::new(()));
        };
        assert!(catch_unwind(AssertUnwindSafe(&mut capture_and_panic)).is_err());
        assert_eq!((current_device_index()?, current_stream(1)?.id()), (0, StreamId::DEFAULT));
        assert_eq!(abandoned.pool(), None);
        assert!(matches!(replay(&abandoned), Err(Error::Graph { .. })));
        graph(&mut abandoned, CaptureOptions::default())?.end()?;
        replay(&abandoned)?;
    }

    fn a_capture_selects_its_stream_and_restores_what_was_current() {
        let (before, captured) = (Stream::new(0)?, Stream::new(2)?);
        set_stream(&before)?;
        let mut work = Graph::new(2)?;
        let options = CaptureOptions { stream: Some(&captured), ..CaptureOptions::default() };
        let capture = graph(&mut work, options)?;
        assert_eq!((current_stream(None)?, current_device_index()?), (captured, 2));
        let _later = StreamGuard::new(&before)?;
        capture.end()?;
        assert_eq!((current_stream(None)?, current_device_index()?), (before, 0), "the later guard is in effect");
        drop(_later);
        assert_eq!((current_stream(2)?.id(), current_device_index()?), (StreamId::DEFAULT, 0));

        let mut other = Graph::new(0)?;
        assert!(matches!(graph(&mut other, options), Err(Error::DeviceMismatch { .. })));
    }

    fn the_core_and_the_facade_have_the_same_current_stream() {
        let stream = Stream::new(1)?;
        let core = accelerator::typed::<Host>(1)?;
        {
            let _guard = StreamGuard::new(&stream)?;
            assert_eq!(core.current_stream().id(), stream.id());
        }
        assert_eq!(core.current_stream(), core.default_stream());
        core.set_current_stream(stream.typed()?)?;
        assert_eq!(current_stream(1)?, stream);
        assert_eq!(Buffer::allocate(1, 1)?.stream_id(), stream.id());
    }

    fn a_graph_keeps_the_memory_of_its_pool() {
        let mut work = Graph::new(None)?;
        let capture = graph(&mut work, CaptureOptions::default())?;
        let mut inside = Buffer::allocate(8, None)?;
        inside.fill(5)?;
        capture.end()?;
        let at = address(&inside);
        let pool = work.pool().unwrap();
        assert_eq!(memory::pool_snapshot(pool, None)?.segments[0].address, at);
        drop(inside);
        empty_cache()?;
        assert_eq!(memory::pool_snapshot(pool, None)?.segments.len(), 1);
        replay(&work)?;
        assert_ne!(address(&Buffer::allocate(8, None)?), at, "the memory serves the graph alone");
        empty_cache()?;
        assert_eq!(memory_reserved(None)?, 2 << 20);
        current_stream(None)?.synchronize()?;
        work.reset()?;
        assert_eq!(work.pool(), None);
        empty_cache()?;
        assert_eq!(memory_reserved(None)?, 0);
    }

    fn graphs_share_a_pool() {
        let pool = graph_pool_handle();
        assert_ne!(pool, generate_graph_pool_handle());
        let mut addresses = Vec::new();
        let mut graphs = [Graph::new(None)?, Graph::new(None)?];
        for work in &mut graphs {
            let options = CaptureOptions { pool: Some(pool), mode: CaptureMode::Relaxed, ..CaptureOptions::default() };
            let capture = graph(work, options)?;
            addresses.push(address(&Buffer::allocate(8, None)?));
            capture.end()?;
            assert_eq!(work.pool(), Some(pool));
        }
        assert_eq!(addresses[0], addresses[1], "the second capture uses the memory that the first one freed");
        assert_eq!(memory_reserved(None)?, 2 << 20);
        let [first, second] = graphs;
        drop(first);
        empty_cache()?;
        assert_eq!(memory_reserved(None)?, 2 << 20, "the second graph still holds the pool");
        drop(second);
        empty_cache()?;
        assert_eq!(memory_reserved(None)?, 0);
    }

    fn capture_begin_captures_the_current_stream() {
        let mut work = Graph::new(None)?;
        assert!(matches!(work.capture_end(), Err(Error::Graph { .. })));
        let (mut buffer, stream) = (Buffer::from_slice(&[0u8; 4], None)?, Stream::new(None)?);
        let _guard = StreamGuard::new(&stream)?;
        work.capture_begin(None, CaptureMode::default())?;
        assert!(stream.is_capturing()?);
        buffer.fill(9)?;
        let mut impossible = [0; 4];
        assert!(buffer.read(0, &mut impossible).is_err(), "a wait is refused while its stream captures");
        work.capture_end()?;
        assert!(matches!(work.capture_begin(None, CaptureMode::default()), Err(Error::Graph { .. })), "not empty");
        replay(&work)?;
        assert_eq!(buffer.to_vec::<u8>()?, [9; 4]);
    }

    fn streams_that_wait_for_the_captured_one_join_the_capture() {
        let (mut buffer, side) = (Buffer::from_slice(&[0u8; 4], None)?, Stream::new(None)?);
        let mut work = Graph::new(None)?;
        let capture = graph(&mut work, CaptureOptions::default())?;
        side.wait_stream(&capture.stream())?;
        {
            let _guard = StreamGuard::new(&side)?;
            assert!(is_current_stream_capturing()?);
            buffer.fill(4)?;
        }
        capture.stream().wait_stream(&side)?;
        capture.end()?;
        replay(&work)?;
        current_stream(None)?.synchronize()?;
        assert_eq!(buffer.to_vec::<u8>()?, [4; 4]);
    }

    fn making_a_graph_opens_the_device() {
        assert!(Accelerator::<Host>::opened(2).is_none());
        assert_eq!(Graph::new(2)?.device().index, 2);
        assert!(Accelerator::<Host>::opened(2).is_some());
    }

    fn a_capture_that_ends_on_another_thread_leaves_the_current_stream_there() {
        let (captured, other) = (Stream::new(None)?, Stream::new(None)?);
        let mut work = Graph::new(None)?;
        {
            let _guard = StreamGuard::new(&captured)?;
            work.capture_begin(None, CaptureMode::default())?;
        }
        let current = thread::spawn(move || {
            let _guard = StreamGuard::new(&other)?;
            work.capture_end()?;
            Ok::<_, Error>((current_stream(None)?, other))
        });
        let (current, other) = current.join().unwrap()?;
        assert_eq!(current, other);
    }
}
