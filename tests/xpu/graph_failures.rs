//! Graphs with calls that fail: a call that returns an error did nothing, nothing is lost, and the streams stay usable.

use accelerator_core::{Backend, DriverErrorKind, DriverResult, StreamKind};
use accelerator_xpu::sys::ze_result_t;
use accelerator_xpu::{Xpu, XpuStream};
use libtest_mimic::Trial;

use crate::bytes::OLD_DRIVER;
use crate::control::{self, LOST, OUT_OF_MEMORY, REFUSED};
use crate::numbers::{Graph, Numbers, begin, launch, with};
use crate::rig::{Outcome, simulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("graph_failures::each_call_refuses", &[], || in_turn(REFUSED)),
        simulated("graph_failures::each_call_of_an_old_driver_refuses", &[OLD_DRIVER], || in_turn(REFUSED)),
        simulated("graph_failures::each_call_is_out_of_memory", &[], || in_turn(OUT_OF_MEMORY)),
        simulated("graph_failures::calls_that_always_fail", &[], always),
        simulated("graph_failures::a_graph_that_cannot_be_waited_for", &[], unwaited),
        simulated("graph_failures::a_lost_device", &[], lost),
    ]
}

/// Captures the program: x and y become the next two Fibonacci numbers, and x is written out.
fn capture(numbers: &mut Numbers<'_>, stream: &XpuStream) -> DriverResult<Graph> {
    let graphs = begin(numbers.device, stream)?;
    let captured = numbers.fibonacci(stream).and_then(|()| numbers.write_out(&numbers.x, stream));
    let graph = graphs.end(stream);
    assert_eq!(graphs.capture_of(stream), Ok(None), "the capture is over, even after an error");
    captured.and(graph)
}

/// The Fibonacci number after this many launches.
fn expected(launches: usize) -> f32 {
    (0..launches).fold((1.0, 0.0), |(x, y), _| (2.0 * x + y, x + y)).0
}

/// Captures, launches on two streams, and drops the graph. Returns what failed, and checks what happened.
fn program(numbers: &mut Numbers<'_>, stream: &XpuStream, side: &XpuStream) -> DriverResult<()> {
    let graph = capture(numbers, stream)?;
    let launched = [stream, side, side].map(|stream| launch(&graph, stream));
    drop(graph);
    control::clear_faults();
    numbers.device.synchronize(side)?;
    let count = launched.iter().filter(|launched| launched.is_ok()).count();
    assert!(count >= 2, "{launched:?}");
    assert_eq!(numbers.output(stream)?, expected(count), "{launched:?}");
    launched.into_iter().collect()
}

fn start(numbers: &Numbers<'_>, stream: &XpuStream) -> DriverResult<()> {
    numbers.set(1.0);
    numbers.read_in(&numbers.x, stream)?;
    numbers.y.fill(0, stream)?;
    numbers.device.synchronize(stream)
}

fn live() -> [u64; 4] {
    [control::live_lists(), control::live_queues(), control::live_modules(), control::live_kernels()]
}

fn in_turn(code: ze_result_t) -> Outcome {
    with(|numbers, stream, side| {
        start(numbers, stream)?;
        program(numbers, stream, side)?; // makes events, which are reused
        let before = control::calls();
        start(numbers, stream)?;
        let started = control::calls() - before;
        control::seed(0);
        program(numbers, stream, side)?;
        let calls = control::calls() - before - started;
        let (live_before, mut reported) = (live(), 0);
        for call in 1..=calls {
            start(numbers, stream)?;
            control::seed(0); // so that the calls are the same each time
            control::fail_at(call, code);
            let done = program(numbers, stream, side);
            control::clear_faults();
            if let Err(error) = done {
                assert_eq!(error.code, i64::from(code.0), "call {call}: {error}");
                reported += 1;
            }
            assert_eq!(live(), live_before, "call {call}: {done:?}");
            start(numbers, stream)?;
            numbers.write_out(&numbers.x, side)?;
            assert_eq!(numbers.output(side)?, 1.0, "call {call}: the streams are usable");
        }
        assert!(reported > 40, "only {reported} of {calls} failures were reported");
        Ok(())
    })
}

/// A function that fails again and again does so until it works again.
fn always() -> Outcome {
    with(|numbers, stream, side| {
        let before = live();
        let preparing = [
            "zeCommandListAppendBarrier",
            "zeCommandListAppendLaunchKernel",
            "zeCommandListAppendMemoryCopy",
            "zeCommandListClose",
            "zeCommandListCreate",
            "zeCommandQueueCreate",
            "zeKernelCreate",
            "zeKernelSetArgumentValue",
            "zeMemGetAllocProperties",
        ];
        for name in preparing {
            start(numbers, stream)?;
            control::fail(name, 0, REFUSED);
            assert_eq!(capture(numbers, stream).err().map(|error| error.call), Some(name));
            control::clear_faults();
            assert_eq!(live(), before);
            program(numbers, stream, side)?;
        }
        for name in ["zeCommandListAppendBarrier", "zeCommandQueueExecuteCommandLists", "zeEventHostReset"] {
            start(numbers, stream)?;
            let graph = capture(numbers, stream)?;
            control::fail(name, 0, REFUSED);
            for stream in [stream, stream, side] {
                assert_eq!(launch(&graph, stream).map_err(|error| error.call), Err(name));
            }
            control::clear_faults();
            for (before, stream) in [stream, side, side].into_iter().enumerate() {
                launch(&graph, stream)?;
                assert_eq!(numbers.output(stream)?, expected(before + 1), "after {name}");
            }
        }
        assert_eq!(live(), before);
        Ok(())
    })
}

/// The graph stays with all that it needs if nobody can tell whether it runs.
fn unwaited() -> Outcome {
    let device = Xpu::open(0)?;
    let mut numbers = Numbers::of(&device)?;
    let stream = device.stream(StreamKind::Default)?;
    start(&numbers, &stream)?;
    let graph = capture(&mut numbers, &stream)?;
    control::hold(stream.native());
    for _ in 0..4 {
        launch(&graph, &stream)?;
    }
    control::fail("zeEventHostSynchronize", 0, REFUSED);
    assert_eq!(launch(&graph, &stream).map_err(|error| error.call), Err("zeEventHostSynchronize"));
    drop(graph);
    control::clear_faults();
    let live = (control::live_lists(), control::live_queues(), control::live_kernels());
    assert_eq!(live, (1 + 4, 1, 1 + 2), "they were destroyed with their work");
    assert_eq!(numbers.output(&stream)?, expected(4));
    Ok(())
}

/// Every call of a graph returns the error of the loss, and captures end.
fn lost() -> Outcome {
    let device = Xpu::open(0)?;
    let mut numbers = Numbers::of(&device)?;
    let (stream, side) = (device.stream(StreamKind::Default)?, device.stream(StreamKind::Default)?);
    start(&numbers, &stream)?;
    let graph = capture(&mut numbers, &stream)?;
    launch(&graph, &stream)?;
    let graphs = begin(&device, &side)?;
    control::fail("zeCommandQueueExecuteCommandLists", 1, LOST);
    let calls = [
        launch(&graph, &stream),
        launch(&graph, &side),
        graphs.end(&side).map(drop),
        begin(&device, &stream).map(drop),
        device.is_capturing(&side).map(drop),
    ];
    for call in calls {
        assert_eq!(call.map_err(|error| error.kind), Err(DriverErrorKind::DeviceLost));
    }
    drop((graph, stream, side));
    Ok(())
}
