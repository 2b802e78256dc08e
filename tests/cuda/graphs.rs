//! Graphs: captures, launches by bytes, captures that break, and what is left of them.
#![allow(unsafe_code)] // launches graphs and kernels

use std::thread;

use accelerator_core::{
    Backend, Buffer, CaptureMode, DriverError, DriverErrorKind, DriverResult, Error, Event, EventFlags,
    ExecutableGraph, Graphs, MIB, Stream,
};
use accelerator_cuda::cudarc::driver::sys::{self, CUresult};
use accelerator_cuda::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use accelerator_cuda::cudarc::nvrtc::Ptx;
use accelerator_cuda::{Cuda, CudaViewMut};
use libtest_mimic::{Failed, Trial};

use crate::rig::{self, Device, Outcome, check_all_gone, check_no_graphs, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("graphs::launches_repeat_the_work::seed_1", &[("CUDA_SIM_SEED", "1")], launches),
        trial("graphs::launches_repeat_the_work::seed_2", &[("CUDA_SIM_SEED", "2")], launches),
        trial("graphs::streams_fork_and_join::seed_1", &[("CUDA_SIM_SEED", "1")], fork_and_join),
        trial("graphs::streams_fork_and_join::seed_2", &[("CUDA_SIM_SEED", "2")], fork_and_join),
        trial("graphs::dropped_under_way", &[], dropped_under_way),
        trial("graphs::captures_have_numbers", &[], numbers),
        trial("graphs::broken_captures_end", &[], broken_captures),
        trial("graphs::modes", &[], modes),
        trial("graphs::allocates_during_captures", &[], allocates),
        trial("graphs::ends_on_its_own_thread", &[], other_thread),
        trial("graphs::every_call_fails_in_turn", &[], every_call),
    ]
}

pub(crate) type Graph = Box<dyn ExecutableGraph<Cuda>>;

pub(crate) fn graphs(device: Device) -> &'static dyn Graphs<Cuda> {
    device.backend().graphs().expect("the driver has graphs")
}

/// Captures what `work` submits. Nothing of it happens.
fn captured(device: Device, stream: Stream<Cuda>, work: impl FnOnce() -> Outcome) -> Result<Graph, Failed> {
    graphs(device).begin(stream.native(), CaptureMode::Global)?;
    work()?;
    Ok(graphs(device).end(stream.native())?)
}

fn launch(graph: &Graph, stream: Stream<Cuda>) -> DriverResult<()> {
    // SAFETY: The trial keeps the buffers until the stream has done the work.
    unsafe { graph.launch(stream.native()) }
}

fn kernel(device: Device) -> Result<CudaFunction, Failed> {
    /// The simulated driver knows this kernel by name: x = a x.
    const SCALE: &str = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry scale(.param .u32 n, \
                         .param .f32 a, .param .u64 x)\n{\n    ret;\n}\n";
    Ok(device.backend().cudarc()?.load_module(Ptx::from_src(SCALE))?.load_function("scale")?)
}

fn double(kernel: &CudaFunction, buffer: &mut Buffer<Cuda>, stream: Stream<Cuda>) -> Outcome {
    let elements = (buffer.len() / 4) as u32;
    let mut x = CudaViewMut::<f32>::new(buffer, stream)?;
    let on = x.stream().clone();
    let mut launch = on.launch_builder(kernel);
    launch.arg(&elements).arg(&2.0_f32).arg(&mut x);
    // SAFETY: The arguments match the kernel, and the buffer has that many elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(elements)) }?;
    Ok(())
}

/// Each launch computes with the bytes that it finds, on any stream, with other work before and after it.
fn launches() -> Outcome {
    let device = device()?;
    let kernel = kernel(device)?;
    let [own, other] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let [mut input, mut work, mut output] = [400; 3].map(|len| device.allocate(len, own).unwrap());
    output.fill(0, own)?;
    let graph = captured(device, own, || {
        output.fill(1, own)?;
        work.copy_from(&input, own)?;
        double(&kernel, &mut work, own)?;
        output.copy_from(&work, own)?;
        Ok(())
    })?;
    let mut read = vec![9; 400];
    output.read(0, &mut read, own)?;
    assert_eq!(read, [0; 400], "captured work has not run");
    for round in 1..20_u8 {
        let stream = if round % 2 == 0 { own } else { other };
        input.slice_mut::<f32>()?.write(&[f32::from(round); 100], stream)?;
        graph.upload(stream.native())?;
        launch(&graph, stream)?;
        input.fill(0, stream)?; // after the launch
        output.read(0, &mut read, stream)?;
        assert_eq!(read, (2.0 * f32::from(round)).to_ne_bytes().repeat(100));
        stream.synchronize()?;
    }
    assert_eq!(rig::calls_of("cuGraphUpload"), 19);
    drop(graph);
    check_no_graphs();
    drop((input, work, output, kernel));
    check_all_gone(device)
}

pub(crate) fn joined(event: &Event<Cuda>, from: Stream<Cuda>, to: Stream<Cuda>) -> Outcome {
    event.record(from)?;
    event.wait(to)?;
    Ok(())
}

/// Work of a side stream runs between the fork and the join.
fn fork_and_join() -> Outcome {
    let device = device()?;
    let [own, side, user] = [0; 3].map(|priority| device.stream(priority).unwrap());
    let [fork, join] = [(); 2].map(|()| device.event(EventFlags::default()));
    let [mut a, mut b] = [MIB; 2].map(|len| device.allocate(len, own).unwrap());
    let graph = captured(device, own, || {
        a.fill(1, own)?;
        joined(&fork, own, side)?;
        b.copy_from(&a, side)?;
        joined(&join, side, own)?;
        a.copy_from(&b, own)?;
        a.fill(2, own)?;
        Ok(())
    })?;
    for round in 0..20 {
        a.fill(round, user)?;
        b.fill(round, user)?;
        launch(&graph, user)?;
        let (mut first, mut second) = ([0; 100], [0; 100]);
        a.read(MIB - 100, &mut first, user)?;
        b.read(MIB - 100, &mut second, user)?;
        assert_eq!((first, second), ([2; 100], [1; 100]));
    }
    user.synchronize()?;
    drop(graph);
    check_no_graphs();
    drop((a, b));
    check_all_gone(device)
}

/// Dropping a graph does not stop launched work.
fn dropped_under_way() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(MIB, stream)?;
    buffer.fill(0, stream)?;
    let graph = captured(device, stream, || Ok(buffer.fill(7, stream)?))?;
    assert_eq!(rig::hold(stream.native().native().expose_provenance()), 0);
    launch(&graph, stream)?;
    drop(graph);
    check_no_graphs();
    let mut read = [0; 10];
    buffer.read(0, &mut read, stream)?;
    assert_eq!(read, [7; 10]);
    drop(buffer);
    check_all_gone(device)
}

fn numbers() -> Outcome {
    let device = device()?;
    let [own, side, other] = [0; 3].map(|priority| device.stream(priority).unwrap());
    let of = |stream: Stream<Cuda>| graphs(device).capture_of(stream.native());
    let mut buffer = device.allocate(MIB, own)?;
    let fork = device.event(EventFlags::default());
    assert_eq!([of(own)?, of(device.default_stream())?], [None; 2]);
    graphs(device).begin(own.native(), CaptureMode::Global)?;
    let number = of(own)?;
    assert!(number.is_some());
    buffer.fill(1, own)?;
    joined(&fork, own, side)?;
    assert_eq!([of(side)?, of(other)?, of(device.default_stream())?], [number, None, None]);
    assert_eq!(refused(graphs(device).begin(own.native(), CaptureMode::Global)), 401);
    graphs(device).begin(other.native(), CaptureMode::Relaxed)?;
    assert!(of(other)?.is_some_and(|another| Some(another) != number));
    graphs(device).end(other.native())?;
    joined(&fork, side, own)?;
    graphs(device).end(own.native())?;
    assert_eq!([of(own)?, of(side)?], [None; 2]);
    graphs(device).begin(own.native(), CaptureMode::Global)?;
    assert!(of(own)?.is_some_and(|another| Some(another) != number));
    graphs(device).end(own.native())?;
    assert_eq!(refused(graphs(device).begin(device.default_stream().native(), CaptureMode::Global)), 900);
    // A stream that the default stream would wait for.
    let mut blocking = std::ptr::null_mut();
    // SAFETY: The call writes a handle.
    let made = unsafe { sys::cuStreamCreate(&mut blocking, 0) };
    // SAFETY: It belongs to the device's context, and is destroyed below.
    let stream = unsafe { device.backend().adopt(blocking) };
    graphs(device).begin(&stream, CaptureMode::Global)?;
    assert_eq!((made, of(device.default_stream())?), (CUresult::CUDA_SUCCESS, None));
    graphs(device).end(&stream)?;
    // SAFETY: Nothing uses it any more.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(blocking) }, CUresult::CUDA_SUCCESS);
    assert_eq!(refused(graphs(device).end(own.native())), 401);
    check_no_graphs();
    drop(buffer);
    check_all_gone(device)
}

/// Returns the code of an error that says that the program may not do this.
fn refused<T>(result: DriverResult<T>) -> i64 {
    let DriverError { kind, code, .. } = result.map(drop).unwrap_err();
    assert_eq!(kind, DriverErrorKind::InvalidArgument, "{code}");
    code
}

/// What a capture is broken by, the error of that call, that of the capture's end, and the call.
type Break<'a> = (&'static str, i64, i64, &'a dyn Fn() -> DriverResult<()>);

/// A capture that breaks ends with an error, and the streams can be used again.
fn broken_captures() -> Outcome {
    let device = device()?;
    let [own, side, far] = [0; 3].map(|priority| device.stream(priority).unwrap());
    let [inside, outside, elsewhere] = [(); 3].map(|()| device.event(EventFlags::default()));
    let mut buffer = device.allocate(MIB, own)?;
    outside.record(far)?;
    let cuda = device.backend();
    let breaks: [Break<'_>; 8] = [
        ("an idle stream", 900, 901, &|| cuda.is_idle(own.native()).map(drop)),
        ("a wait", 900, 901, &|| cuda.synchronize(own.native())),
        ("a wait for the side", 900, 901, &|| cuda.synchronize(side.native())),
        ("a query of an event", 907, 901, &|| driver(inside.is_complete()).map(drop)),
        ("a wait for an event", 907, 901, &|| driver(inside.synchronize())),
        ("work from outside", 905, 901, &|| driver(outside.wait(own))),
        ("work of another capture", 902, 901, &|| driver(elsewhere.wait(own))),
        ("no join", 0, 904, &|| Ok(())),
    ];
    for (what, expected, end, call) in breaks {
        graphs(device).begin(far.native(), CaptureMode::Relaxed)?;
        elsewhere.record(far)?;
        graphs(device).begin(own.native(), CaptureMode::Relaxed)?;
        buffer.fill(1, own)?;
        joined(&inside, own, side)?;
        buffer.fill(2, side)?;
        let told = call();
        assert_eq!(if told.is_ok() { 0 } else { refused(told) }, expected, "{what}");
        assert_eq!(graphs(device).capture_of(own.native())?.is_some(), expected == 0, "{what}");
        assert_eq!(refused(graphs(device).end(own.native())), end, "{what}");
        for stream in [own, side] {
            assert!(!stream.is_capturing()?, "{what}");
        }
        let _ = graphs(device).end(far.native());
        check_no_graphs();
        outside.record(far)?;

        let graph = captured(device, own, || Ok(buffer.fill(9, own)?))?;
        launch(&graph, own)?;
        let mut read = [0; 10];
        buffer.read(0, &mut read, own)?;
        assert_eq!(read, [9; 10], "{what}");
        own.synchronize()?;
    }
    // Another library may end the capture without the stream where it began.
    graphs(device).begin(own.native(), CaptureMode::Relaxed)?;
    joined(&inside, own, side)?;
    assert_eq!(refused(graphs(device).end(side.native())), 903);
    assert_eq!(refused(graphs(device).end(own.native())), 901);
    check_no_graphs();
    drop(buffer);
    check_all_gone(device)
}

/// Returns the driver's part of an error.
fn driver<T>(result: Result<T, Error>) -> DriverResult<T> {
    result.map_err(|error| match error {
        Error::Driver { source, .. } => source,
        other => panic!("{other}"),
    })
}

/// Allocates and frees memory without regard for captures. Returns whether the driver let it.
fn careless(device: Device) -> bool {
    device.backend().memory_info().unwrap(); // makes the context current
    let mut at = 0;
    // SAFETY: The call writes an address.
    let allocated = unsafe { sys::cuMemAlloc_v2(&mut at, 1) } == CUresult::CUDA_SUCCESS;
    // SAFETY: It was just allocated, and nothing uses it.
    allocated && unsafe { sys::cuMemFree_v2(at) } == CUresult::CUDA_SUCCESS
}

/// The mode says which threads may not make careless calls.
fn modes() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let here = || careless(device);
    let there = || thread::spawn(move || careless(device)).join().unwrap();
    let rules = [
        (CaptureMode::Global, [false, false]),
        (CaptureMode::ThreadLocal, [false, true]),
        (CaptureMode::Relaxed, [false, true]),
    ];
    for (mode, [same, other]) in rules {
        for (expected, run) in [(same, &here as &dyn Fn() -> bool), (other, &there)] {
            graphs(device).begin(stream.native(), mode)?;
            // The thread's own mode is still global, which forbids careless calls beside its own captures.
            let expected = expected || matches!(mode, CaptureMode::Relaxed);
            assert_eq!(run(), expected, "{mode:?}");
            assert_eq!(graphs(device).end(stream.native()).is_ok(), expected, "{mode:?}");
        }
    }
    check_no_graphs();
    check_all_gone(device)
}

/// The backend allocates and frees during captures of any mode, on any thread, and makes and drops graphs.
fn allocates() -> Outcome {
    let device = device()?;
    let [own, other] = [0; 2].map(|priority| device.stream(priority).unwrap());
    let mut buffer = device.allocate(MIB, own)?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        graphs(device).begin(own.native(), mode)?;
        buffer.fill(1, own)?;
        let work = move || {
            let taken = device.allocate(64 * MIB, other)?;
            let pinned = device.allocate_host(64 * MIB)?;
            drop((taken, pinned));
            device.allocator().empty_cache()?;
            device.host_allocator().empty_cache()
        };
        work()?;
        thread::spawn(work).join().unwrap()?;
        drop(captured(device, other, || Ok(()))?);
        drop(graphs(device).end(own.native())?);
    }
    check_no_graphs();
    drop(buffer);
    check_all_gone(device)
}

/// Unless it is relaxed, a capture has to end on the thread that began it. Ended elsewhere, it is lost.
fn other_thread() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let elsewhere = move || graphs(device).end(stream.native()).map(drop);
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        graphs(device).begin(stream.native(), mode)?;
        assert_eq!(refused(thread::spawn(elsewhere).join().unwrap()), 908);
        assert!(!stream.is_capturing()?);
        assert_eq!(refused(graphs(device).end(stream.native()).map(drop)), 401);
    }
    graphs(device).begin(stream.native(), CaptureMode::Relaxed)?;
    thread::spawn(elsewhere).join().unwrap()?;
    check_no_graphs();
    check_all_gone(device)
}

/// Captures, marks and launches. Ends the capture whatever happens.
fn program(device: Device, buffer: &mut Buffer<Cuda>, stream: Stream<Cuda>) -> Outcome {
    graphs(device).begin(stream.native(), CaptureMode::Global)?;
    let worked = (|| -> Outcome {
        buffer.fill(3, stream)?;
        let mark = graphs(device).mark(stream.native())?.expect("something was captured");
        assert_eq!(graphs(device).precede(&[mark], stream.native())?, [true]);
        assert!(graphs(device).capture_of(stream.native())?.is_some());
        Ok(())
    })();
    let ended = graphs(device).end(stream.native());
    worked?;
    let graph = ended?;
    graph.upload(stream.native())?;
    Ok(launch(&graph, stream)?)
}

/// Whichever call fails, no capture goes on, and no graph is left.
fn every_call() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(MIB, stream)?;
    let before = rig::calls();
    program(device, &mut buffer, stream)?;
    let (whole, mut told) = (rig::calls() - before, 0);
    for call in 1..=whole {
        rig::fail_at(call, 1);
        let worked = program(device, &mut buffer, stream);
        assert_eq!(rig::clear_faults(), 0, "call {call} was made");
        assert!(!stream.is_capturing()?, "call {call}");
        check_no_graphs();
        told += usize::from(worked.inspect_err(check_names_a_call).is_err());
        stream.synchronize()?;
    }
    assert!(told > 10, "only {told} of {whole} failures were reported");
    drop(buffer);
    check_all_gone(device)
}

fn check_names_a_call(failed: &Failed) {
    let text = failed.message().unwrap_or_default();
    assert!(text.contains("cu"), "{text}");
}
