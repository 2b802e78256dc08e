//! Graphs do what was captured, each time that they are launched, whatever order the driver chooses for unordered work.

use std::ptr::NonNull;

use accelerator_core::{Backend, DriverErrorKind, DriverResult, EventFlags, Place, StreamKind};
use libtest_mimic::Trial;

use crate::bytes::OLD_DRIVER;
use crate::control;
use crate::numbers::{begin, launch, recorded, with};
use crate::rig::{Outcome, simulated};
use crate::whole::{self, LEN};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("graphs::replay_what_was_captured", &[], replay),
        simulated("graphs::replay_what_was_captured_on_an_old_driver", &[OLD_DRIVER], replay),
        simulated("graphs::are_work_of_their_stream", &[], between_work),
        simulated("graphs::are_work_of_their_stream_on_an_old_driver", &[OLD_DRIVER], between_work),
        simulated("graphs::fork_and_join", &[], fork_and_join),
        simulated("graphs::run_one_launch_after_another", &[], two_streams),
        simulated("graphs::wait_for_a_launch_only_if_four_are_in_flight", &[], in_flight),
        simulated("graphs::keep_their_kernels", &[], kept_kernels),
        simulated("graphs::refuse_what_cannot_be_captured", &[], refusals),
        simulated("graphs::refuse_pageable_memory", &[], pageable),
        simulated("graphs::must_be_joined", &[], unjoined),
        simulated("graphs::end_with_their_stream", &[], abandoned),
        simulated("graphs::may_be_dropped_while_they_run", &[], dropped),
    ]
}

/// Each command depends on the one before, and overwrites what that one would read if it ran later. The input changes.
fn replay() -> Outcome {
    with(|numbers, stream, _| {
        let graphs = begin(numbers.device, stream)?;
        assert!(numbers.device.is_capturing(stream)? && graphs.capture_of(stream)?.is_some());
        numbers.read_in(&numbers.x, stream)?;
        numbers.copy(&numbers.y, &numbers.x, stream)?;
        numbers.saxpy(2.0, [numbers.x.1, numbers.y.1], stream)?;
        numbers.x.fill(0xee, stream)?;
        numbers.copy(&numbers.z, &numbers.y, stream)?;
        numbers.y.fill(0xee, stream)?;
        numbers.write_out(&numbers.z, stream)?;
        numbers.z.fill(0xee, stream)?;
        let graph = graphs.end(stream)?;
        assert!(!numbers.device.is_capturing(stream)? && graphs.capture_of(stream)?.is_none());
        assert_eq!(numbers.output(stream)?, 0.0, "captured, so not run");
        for seed in 0..50 {
            control::seed(seed);
            numbers.set(seed as f32);
            launch(&graph, stream)?;
            assert_eq!(numbers.output(stream)?, 3.0 * seed as f32, "seed {seed}");
        }
        Ok(())
    })
}

/// A launch follows the earlier work of its stream, and precedes the later. It returns before anything runs.
fn between_work() -> Outcome {
    with(|numbers, stream, _| {
        let graphs = begin(numbers.device, stream)?;
        numbers.copy(&numbers.y, &numbers.x, stream)?;
        numbers.saxpy(1.0, [numbers.x.1, numbers.y.1], stream)?;
        let graph = graphs.end(stream)?;
        for seed in 0..50 {
            control::seed(seed);
            control::hold(stream.native());
            numbers.set(seed as f32);
            numbers.x.fill(0xdd, stream)?;
            numbers.read_in(&numbers.x, stream)?;
            launch(&graph, stream)?;
            let launched = recorded(numbers.device, stream)?;
            numbers.x.fill(0xee, stream)?;
            numbers.write_out(&numbers.y, stream)?;
            numbers.y.fill(0xee, stream)?;
            for _ in 0..100 {
                assert!(!numbers.device.is_idle(stream)? && !numbers.device.is_complete(&launched)?);
            }
            assert_eq!(numbers.output(stream)?, 2.0 * seed as f32, "seed {seed}");
            assert!(numbers.device.is_complete(&launched)?);
        }
        Ok(())
    })
}

/// Two streams take part in the capture.
fn fork_and_join() -> Outcome {
    with(|numbers, stream, side| {
        let graphs = begin(numbers.device, stream)?;
        numbers.read_in(&numbers.x, stream)?;
        numbers.device.wait(side, &recorded(numbers.device, stream)?)?;
        assert_eq!(graphs.capture_of(side)?, graphs.capture_of(stream)?);
        assert!(numbers.device.is_capturing(side)?);
        numbers.copy(&numbers.y, &numbers.x, side)?;
        numbers.copy(&numbers.z, &numbers.x, stream)?;
        numbers.saxpy(1.0, [numbers.x.1, numbers.y.1], side)?;
        numbers.saxpy(2.0, [numbers.x.1, numbers.z.1], stream)?;
        let forked = graphs.mark(side)?.unwrap();
        assert_eq!((graphs.precede(&[forked], stream)?, graphs.precede(&[forked], side)?), (vec![false], vec![true]));
        numbers.device.wait(stream, &recorded(numbers.device, side)?)?;
        assert_eq!(graphs.precede(&[forked], stream)?, [true]);
        numbers.x.fill(0xee, stream)?;
        numbers.saxpy(1.0, [numbers.y.1, numbers.z.1], stream)?;
        numbers.y.fill(0xee, stream)?;
        numbers.write_out(&numbers.z, stream)?;
        let graph = graphs.end(stream)?;
        for seed in 0..50 {
            control::seed(seed);
            numbers.set(seed as f32);
            launch(&graph, side)?;
            assert_eq!(numbers.output(side)?, 5.0 * seed as f32, "seed {seed}");
        }
        Ok(())
    })
}

fn two_streams() -> Outcome {
    with(|numbers, stream, side| {
        let graphs = begin(numbers.device, stream)?;
        numbers.fibonacci(stream)?;
        numbers.write_out(&numbers.x, stream)?;
        let graph = graphs.end(stream)?;
        for seed in 0..20 {
            control::seed(seed);
            numbers.set(1.0);
            numbers.read_in(&numbers.x, stream)?;
            numbers.y.fill(0, stream)?;
            numbers.device.synchronize(stream)?;
            for _ in 0..5 {
                launch(&graph, stream)?;
                launch(&graph, side)?;
                launch(&graph, side)?;
            }
            numbers.device.synchronize(side)?;
            assert_eq!(numbers.output(stream)?, 1_346_269.0, "the 31st Fibonacci number; seed {seed}");
        }
        Ok(())
    })
}

/// A list runs once at a time, so launches in flight have lists of their own, which later launches use again.
fn in_flight() -> Outcome {
    with(|numbers, stream, side| {
        let graphs = begin(numbers.device, stream)?;
        numbers.read_in(&numbers.x, stream)?;
        let graph = graphs.end(stream)?;
        let streams = control::live_lists() - 1;
        for round in 0..3 {
            control::hold(stream.native());
            numbers.y.fill(1, stream)?;
            let first = recorded(numbers.device, stream)?;
            for count in 1..=4 {
                launch(&graph, if count % 2 == 1 { stream } else { side })?;
                if round == 0 {
                    assert_eq!(control::live_lists(), streams + count);
                }
            }
            assert!(!numbers.device.is_complete(&first)?, "a launch has waited");
            launch(&graph, stream)?;
            assert!(numbers.device.is_complete(&first)?, "the first launch is done");
            assert_eq!(control::live_lists(), streams + 4);
            numbers.device.synchronize(stream)?;
            numbers.device.synchronize(side)?;
        }
        Ok(())
    })
}

/// Later launches of a kernel have other arguments. Then the kernel and its module are dropped.
fn kept_kernels() -> Outcome {
    with(|numbers, stream, _| {
        let graphs = begin(numbers.device, stream)?;
        numbers.read_in(&numbers.x, stream)?;
        numbers.y.fill(0, stream)?;
        for a in [10.0, 20.0] {
            numbers.saxpy(a, [numbers.x.1, numbers.y.1], stream)?;
        }
        numbers.write_out(&numbers.y, stream)?;
        let graph = graphs.end(stream)?;
        numbers.saxpy(7.0, [numbers.x.1, numbers.z.1], stream)?;
        numbers.kernel = None;
        assert_eq!((control::live_modules(), control::live_kernels()), (1, 2));
        for value in [1.0, 2.0] {
            numbers.set(value);
            launch(&graph, stream)?;
            assert_eq!(numbers.output(stream)?, 30.0 * value);
        }
        drop(graph);
        assert_eq!((control::live_modules(), control::live_kernels()), (0, 0));
        Ok(())
    })
}

fn is_refused<T>(answer: DriverResult<T>) {
    assert_eq!(answer.err().map(|error| error.kind), Some(DriverErrorKind::InvalidArgument));
}

/// The capture goes on after each.
fn refusals() -> Outcome {
    with(|numbers, stream, side| {
        let device = numbers.device;
        let graphs = begin(device, side)?;
        numbers.read_in(&numbers.x, side)?;
        let other = graphs.end(side)?;

        numbers.z.fill(1, side)?;
        let outside = recorded(device, side)?;
        let timed = device.event(EventFlags::TIMING)?;
        begin(device, stream)?;
        numbers.read_in(&numbers.x, stream)?;
        let event = recorded(device, stream)?;
        device.record(&timed, stream)?;
        assert_eq!(device.event_id(&event), 0);
        is_refused(begin(device, stream));
        is_refused(device.synchronize(stream));
        is_refused(device.is_idle(stream));
        is_refused(device.is_complete(&event));
        is_refused(device.wait_host(&event));
        is_refused(device.elapsed_ns(&timed, &timed));
        is_refused(device.wait(stream, &outside));
        is_refused(launch(&other, stream));
        is_refused(stream.submit(|_| panic!("these commands cannot be captured")));
        device.wait(stream, &device.event(EventFlags::default())?)?; // never recorded
        numbers.write_out(&numbers.x, stream)?;
        let graph = graphs.end(stream)?;
        is_refused(device.is_complete(&event));
        is_refused(device.wait(side, &event));
        is_refused(graphs.end(stream).map(drop));

        numbers.set(4.0);
        launch(&graph, stream)?;
        device.record(&event, stream)?;
        device.wait(side, &event)?;
        device.wait_host(&event)?;
        assert_eq!(numbers.output(stream)?, 4.0);
        Ok(())
    })
}

fn pageable() -> Outcome {
    with(|numbers, stream, _| {
        let device = numbers.device;
        let mut own = vec![7_u8; LEN.get() as usize];
        let own = Place::Host(NonNull::from(&mut own[0]));
        numbers.read_in(&numbers.x, stream)?;
        let graphs = begin(device, stream)?;
        numbers.write_out(&numbers.x, stream)?;
        is_refused(whole::copy(device, Place::Device(numbers.x.1), own, stream));
        is_refused(whole::copy(device, own, Place::Device(numbers.x.1), stream));
        let graph = graphs.end(stream)?;
        whole::copy(device, Place::Device(numbers.x.1), own, stream)?;
        launch(&graph, stream)?;
        assert_eq!(numbers.output(stream)?, f32::from_ne_bytes([7; 4]));
        Ok(())
    })
}

/// After the error, both streams run their work again, and capture again.
fn unjoined() -> Outcome {
    with(|numbers, stream, side| {
        for is_joined in [false, true] {
            let graphs = begin(numbers.device, stream)?;
            numbers.read_in(&numbers.x, stream)?;
            numbers.device.wait(side, &recorded(numbers.device, stream)?)?;
            numbers.write_out(&numbers.x, side)?;
            if !is_joined {
                is_refused(graphs.end(stream).map(drop));
                assert!(!numbers.device.is_capturing(stream)? && !numbers.device.is_capturing(side)?);
                numbers.set(2.0);
                numbers.read_in(&numbers.x, side)?;
                numbers.write_out(&numbers.x, side)?;
                assert_eq!(numbers.output(side)?, 2.0);
                continue;
            }
            numbers.device.wait(stream, &recorded(numbers.device, side)?)?;
            let graph = graphs.end(stream)?;
            numbers.set(3.0);
            launch(&graph, stream)?;
            assert_eq!(numbers.output(stream)?, 3.0);
        }
        Ok(())
    })
}

/// A stream is dropped while it captures, with the kernel of the capture. The other stream runs its work again.
fn abandoned() -> Outcome {
    with(|numbers, _, side| {
        let stream = numbers.device.stream(StreamKind::Default)?;
        begin(numbers.device, &stream)?;
        numbers.fibonacci(&stream)?;
        numbers.device.wait(side, &recorded(numbers.device, &stream)?)?;
        numbers.write_out(&numbers.x, side)?;
        assert!(control::live_kernels() > 1);
        drop(stream);
        assert_eq!(control::live_kernels(), 1);
        assert!(!numbers.device.is_capturing(side)?);
        numbers.set(6.0);
        numbers.read_in(&numbers.x, side)?;
        numbers.write_out(&numbers.x, side)?;
        assert_eq!(numbers.output(side)?, 6.0);
        Ok(())
    })
}

/// Dropping the graph does not stop it, and destroys nothing that runs.
fn dropped() -> Outcome {
    with(|numbers, stream, _| {
        for seed in 0..20 {
            control::seed(seed);
            let graphs = begin(numbers.device, stream)?;
            numbers.read_in(&numbers.x, stream)?;
            numbers.write_out(&numbers.x, stream)?;
            let graph = graphs.end(stream)?;
            control::hold(stream.native());
            numbers.set(seed as f32);
            launch(&graph, stream)?;
            drop(graph);
            assert_eq!(control::live_queues(), 0);
            assert_eq!(numbers.output(stream)?, seed as f32);
        }
        Ok(())
    })
}
