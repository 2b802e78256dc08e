//! Graphs do what was captured, each time that they are launched.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, DriverResult, EventFlags, Place, StreamKind};
use accelerator_vulkan::VulkanPtr;
use fastrand::Rng;
use libtest_mimic::Trial;

use crate::numbers::{LEN, Numbers, launch, with};
use crate::rig::{Outcome, bytes, read_raw, trial};
use crate::spy::Spied;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("graphs::replay_what_was_captured", replay),
        trial("graphs::random_work_equals_a_model", random),
        trial("graphs::are_work_of_their_stream", between_work),
        trial("graphs::fork_and_join", fork_and_join),
        trial("graphs::run_one_launch_after_another", two_streams),
        trial("graphs::wait_for_their_last_launch", waits),
        trial("graphs::keep_their_kernels", kept_kernels),
        trial("graphs::refuse_what_cannot_be_captured", refusals),
        trial("graphs::refuse_pageable_memory", pageable),
        trial("graphs::must_be_joined", unjoined),
        trial("graphs::end_with_their_stream", abandoned),
        trial("graphs::may_be_dropped_while_they_run", dropped),
    ]
}

/// Each command depends on the one before, and overwrites what that one would read if it ran later. The input changes.
fn replay() -> Outcome {
    with(|numbers, stream, _| {
        let graphs = numbers.begin(stream)?;
        assert!(numbers.backend.is_capturing(stream)? && graphs.capture_of(stream)?.is_some());
        numbers.read_in(numbers.x, stream)?;
        numbers.copy(Place::Device(numbers.y), Place::Device(numbers.x), stream)?;
        numbers.saxpy(2.0, [numbers.x, numbers.y], stream)?;
        numbers.fill(numbers.x, 0xee, stream)?;
        numbers.copy(Place::Device(numbers.z), Place::Device(numbers.y), stream)?;
        numbers.fill(numbers.y, 0xee, stream)?;
        numbers.write_out(numbers.z, stream)?;
        numbers.fill(numbers.z, 0xee, stream)?;
        let graph = graphs.end(stream)?;
        assert!(!numbers.backend.is_capturing(stream)? && graphs.capture_of(stream)?.is_none());
        numbers.expect(0.0, stream); // captured, so not run
        for value in (0..20_u8).map(f32::from) {
            numbers.set(value);
            launch(&graph, stream)?;
            numbers.expect(3.0 * value, stream);
        }
        Ok(())
    })
}

/// Captured copies and fills of any length at any place do the same as on the host.
fn random() -> Outcome {
    with(|numbers, stream, side| {
        let mut random = Rng::with_seed(3);
        let mut model = vec![0_u8; 2 * LEN as usize];
        numbers.fill(numbers.x, 0, stream)?;
        numbers.fill(numbers.y, 0, stream)?;
        for graph in 0..20 {
            let mut work: Vec<(Range<usize>, Result<usize, u8>)> = Vec::new();
            let graphs = numbers.begin(stream)?;
            // The streams take turns.
            for (turn, captured) in [stream, side].into_iter().cycle().take(10).enumerate() {
                if turn > 0 {
                    numbers.wait(captured, [side, stream][turn % 2])?;
                }
                for _ in 0..random.usize(1..6) {
                    let bits = random.u64(1..17);
                    let len = 1 + random.u64(..1 << bits);
                    let [to, from] = [0; 2].map(|_| random.u64(..LEN - len));
                    let place = |ptr: VulkanPtr, at| Place::Device(ptr.offset(at));
                    let to_x = random.bool();
                    let (target, source) = if to_x { (numbers.x, numbers.y) } else { (numbers.y, numbers.x) };
                    let start = if to_x { to } else { LEN + to } as usize;
                    let value = if random.bool() { Ok(()) } else { Err(random.u8(..)) };
                    match value {
                        Ok(()) => {
                            let (to, from) = (place(target, to), place(source, from));
                            // SAFETY: The ranges are inside the memory, and do not overlap.
                            unsafe { numbers.backend.copy(to, from, bytes(len), captured) }
                        }
                        // SAFETY: The range is inside the memory.
                        Err(value) => unsafe { numbers.backend.fill(target.offset(to), value, bytes(len), captured) },
                    }?;
                    let from = if to_x { LEN + from } else { from } as usize;
                    work.push((start..start + len as usize, value.map(|()| from)));
                }
            }
            numbers.wait(stream, side)?;
            let replayed = graphs.end(stream)?;
            for (value, launched) in [(1, stream), (2, side)] {
                numbers.fill(numbers.x, value, launched)?;
                launch(&replayed, launched)?;
                model[..LEN as usize].fill(value);
                for (to, source) in &work {
                    match source {
                        Ok(from) => model.copy_within(*from..from + to.len(), to.start),
                        Err(value) => model[to.clone()].fill(*value),
                    }
                }
                for (half, ptr) in model.chunks(LEN as usize).zip([numbers.x, numbers.y]) {
                    let found = read_raw(&numbers.backend, ptr, LEN, launched)?;
                    assert!(found == half, "graph {graph}");
                }
            }
        }
        Ok(())
    })
}

/// A launch follows the earlier work of its stream, and precedes the later.
fn between_work() -> Outcome {
    with(|numbers, stream, _| {
        let graphs = numbers.begin(stream)?;
        numbers.copy(Place::Device(numbers.y), Place::Device(numbers.x), stream)?;
        numbers.saxpy(1.0, [numbers.x, numbers.y], stream)?;
        let graph = graphs.end(stream)?;
        for value in (0..20_u8).map(f32::from) {
            numbers.set(value);
            numbers.fill(numbers.x, 0xdd, stream)?;
            numbers.read_in(numbers.x, stream)?;
            launch(&graph, stream)?;
            let launched = numbers.recorded(stream)?;
            numbers.fill(numbers.x, 0xee, stream)?;
            numbers.write_out(numbers.y, stream)?;
            numbers.fill(numbers.y, 0xee, stream)?;
            numbers.expect(2.0 * value, stream);
            assert!(numbers.backend.is_complete(&launched)?);
        }
        Ok(())
    })
}

/// Two streams take part in the capture.
fn fork_and_join() -> Outcome {
    with(|numbers, stream, side| {
        let graphs = numbers.begin(stream)?;
        numbers.read_in(numbers.x, stream)?;
        numbers.wait(side, stream)?;
        assert!(graphs.capture_of(side)? == graphs.capture_of(stream)? && numbers.backend.is_capturing(side)?);
        numbers.copy(Place::Device(numbers.y), Place::Device(numbers.x), side)?;
        numbers.copy(Place::Device(numbers.z), Place::Device(numbers.x), stream)?;
        numbers.saxpy(1.0, [numbers.x, numbers.y], side)?;
        numbers.saxpy(2.0, [numbers.x, numbers.z], stream)?;
        let forked = graphs.mark(side)?.unwrap();
        assert_eq!((graphs.precede(&[forked], stream)?, graphs.precede(&[forked], side)?), (vec![false], vec![true]));
        numbers.wait(stream, side)?;
        assert_eq!(graphs.precede(&[forked], stream)?, [true]);
        numbers.fill(numbers.x, 0xee, stream)?;
        numbers.saxpy(1.0, [numbers.y, numbers.z], stream)?;
        numbers.fill(numbers.y, 0xee, stream)?;
        numbers.write_out(numbers.z, stream)?;
        let graph = graphs.end(stream)?;
        for value in (0..20_u8).map(f32::from) {
            numbers.set(value);
            launch(&graph, side)?;
            numbers.expect(5.0 * value, side);
        }
        Ok(())
    })
}

/// Each launch doubles the numbers twice.
fn two_streams() -> Outcome {
    with(|numbers, stream, side| {
        let graphs = numbers.begin(stream)?;
        numbers.saxpy(1.0, [numbers.x, numbers.x], stream)?;
        numbers.saxpy(1.0, [numbers.x, numbers.x], stream)?;
        let graph = graphs.end(stream)?;
        numbers.set(1.0);
        numbers.read_in(numbers.x, stream)?;
        for _ in 0..10 {
            for launched in [stream, stream, side, side, stream] {
                launch(&graph, launched)?;
            }
        }
        numbers.write_out(numbers.x, stream)?;
        numbers.expect(4_f32.powi(50), stream);
        Ok(())
    })
}

/// A launch on another stream waits for the one before, and one on the same stream need not.
fn waits() -> Outcome {
    let spied = Spied::new()?;
    {
        let numbers = Numbers::on(spied.open(1 << 26)?)?;
        let [stream, side] = [StreamKind::Default; 2].map(|kind| numbers.backend.stream(kind).unwrap());
        let graphs = numbers.begin(&stream)?;
        numbers.fill(numbers.x, 1, &stream)?;
        let graph = graphs.end(&stream)?;
        let mut waits = Vec::new();
        for launched in [&stream, &stream, &side, &side, &stream] {
            let before = spied.waits();
            launch(&graph, launched)?;
            waits.push(spied.waits() - before);
        }
        assert_eq!(waits, [0, 0, 1, 0, 1]);
    }
    assert_eq!(spied.left(), []);
    Ok(())
}

/// Later launches of a kernel have other arguments. Then the kernel is dropped.
fn kept_kernels() -> Outcome {
    let spied = Spied::new()?;
    let mut numbers = Numbers::on(spied.open(1 << 26)?)?;
    let stream = numbers.backend.stream(StreamKind::Default)?;
    let graphs = numbers.begin(&stream)?;
    numbers.read_in(numbers.x, &stream)?;
    numbers.fill(numbers.y, 0, &stream)?;
    for a in [10.0, 20.0] {
        numbers.saxpy(a, [numbers.x, numbers.y], &stream)?;
    }
    numbers.write_out(numbers.y, &stream)?;
    let graph = graphs.end(&stream)?;
    for _ in 0..20 {
        numbers.saxpy(7.0, [numbers.x, numbers.z], &stream)?;
    }
    numbers.kernel = None;
    numbers.backend.synchronize(&stream)?;
    assert_eq!(spied.live("vkCreatePipelineLayout"), 1);
    for value in [1.0, 2.0] {
        numbers.set(value);
        launch(&graph, &stream)?;
        numbers.expect(30.0 * value, &stream);
    }
    drop(graph);
    assert_eq!(spied.live("vkCreatePipelineLayout"), 0);
    Ok(())
}

#[track_caller]
fn is_refused<T>(answer: DriverResult<T>) {
    assert_eq!(answer.err().map(|error| error.kind), Some(DriverErrorKind::InvalidArgument));
}

/// The capture goes on after each.
fn refusals() -> Outcome {
    with(|numbers, stream, side| {
        let backend = &numbers.backend;
        let graphs = numbers.begin(side)?;
        numbers.read_in(numbers.x, side)?;
        let other = graphs.end(side)?;

        numbers.fill(numbers.z, 1, side)?;
        let outside = numbers.recorded(side)?;
        numbers.begin(stream)?;
        numbers.read_in(numbers.x, stream)?;
        let (event, timed) = (numbers.recorded(stream)?, backend.event(EventFlags::TIMING)?);
        backend.record(&timed, stream)?;
        is_refused(numbers.begin(stream));
        is_refused(backend.synchronize(stream));
        is_refused(backend.is_idle(stream));
        is_refused(backend.is_complete(&event));
        is_refused(backend.wait_host(&event));
        is_refused(backend.elapsed_ns(&timed, &timed));
        is_refused(backend.wait(stream, &outside));
        is_refused(launch(&other, stream));
        // SAFETY: There is no command buffer.
        is_refused(unsafe { stream.submit(&[], ()) });
        // SAFETY: Nothing is submitted.
        is_refused(unsafe { stream.with_queue(|_| unreachable!("this cannot be captured")) });
        backend.wait(stream, &backend.event(EventFlags::default())?)?; // never recorded
        numbers.write_out(numbers.x, stream)?;
        let graph = graphs.end(stream)?;
        is_refused(backend.is_complete(&event));
        is_refused(backend.wait(side, &event));
        is_refused(graphs.end(stream).map(drop));

        numbers.set(4.0);
        launch(&graph, stream)?;
        backend.record(&event, stream)?;
        backend.wait(side, &event)?;
        backend.wait_host(&event)?;
        numbers.expect(4.0, stream);
        Ok(())
    })
}

fn pageable() -> Outcome {
    with(|numbers, stream, _| {
        let mut own = vec![7_u8; LEN as usize];
        let own = Place::Host(NonNull::from(own.as_mut_slice()).cast());
        let graphs = numbers.begin(stream)?;
        numbers.write_out(numbers.x, stream)?;
        is_refused(numbers.copy(Place::Device(numbers.x), own, stream));
        is_refused(numbers.copy(own, Place::Device(numbers.x), stream));
        let graph = graphs.end(stream)?;
        numbers.copy(Place::Device(numbers.x), own, stream)?;
        launch(&graph, stream)?;
        numbers.expect(f32::from_ne_bytes([7; 4]), stream);
        Ok(())
    })
}

/// After the error, both streams run their work again, and capture again.
fn unjoined() -> Outcome {
    with(|numbers, stream, side| {
        for is_joined in [false, true] {
            let graphs = numbers.begin(stream)?;
            numbers.read_in(numbers.x, stream)?;
            numbers.wait(side, stream)?;
            numbers.write_out(numbers.x, side)?;
            if !is_joined {
                is_refused(graphs.end(stream).map(drop));
                assert!(!numbers.backend.is_capturing(stream)? && !numbers.backend.is_capturing(side)?);
                numbers.set(2.0);
                numbers.read_in(numbers.x, side)?;
                numbers.write_out(numbers.x, side)?;
                numbers.expect(2.0, side);
                continue;
            }
            numbers.wait(stream, side)?;
            let graph = graphs.end(stream)?;
            numbers.set(3.0);
            launch(&graph, stream)?;
            numbers.expect(3.0, stream);
        }
        Ok(())
    })
}

/// A stream is dropped while it captures, with the kernel of the capture. The other stream runs its work again.
fn abandoned() -> Outcome {
    let spied = Spied::new()?;
    {
        let mut numbers = Numbers::on(spied.open(1 << 26)?)?;
        let [stream, side] = [StreamKind::Default; 2].map(|kind| numbers.backend.stream(kind).unwrap());
        numbers.begin(&stream)?;
        numbers.saxpy(1.0, [numbers.x, numbers.y], &stream)?;
        numbers.wait(&side, &stream)?;
        numbers.write_out(numbers.x, &side)?;
        numbers.kernel = None;
        assert_eq!(spied.live("vkCreatePipelineLayout"), 1);
        drop(stream);
        assert_eq!(spied.live("vkCreatePipelineLayout"), 0);
        assert!(!numbers.backend.is_capturing(&side)?);
        numbers.set(6.0);
        numbers.read_in(numbers.x, &side)?;
        numbers.write_out(numbers.x, &side)?;
        numbers.expect(6.0, &side);
    }
    assert_eq!(spied.left(), []);
    Ok(())
}

/// Dropping the graph does not stop it, and destroys nothing that runs.
fn dropped() -> Outcome {
    let spied = Spied::new()?;
    let numbers = Numbers::on(spied.open(1 << 26)?)?;
    let stream = numbers.backend.stream(StreamKind::Default)?;
    let pools = spied.live("vkCreateCommandPool");
    for value in (0..20_u8).map(f32::from) {
        let graphs = numbers.begin(&stream)?;
        numbers.read_in(numbers.x, &stream)?;
        numbers.fill(numbers.y, 0, &stream)?;
        for _ in 0..50 {
            numbers.saxpy(1.0, [numbers.x, numbers.y], &stream)?;
        }
        numbers.write_out(numbers.y, &stream)?;
        let graph = graphs.end(&stream)?;
        numbers.set(value);
        launch(&graph, &stream)?;
        drop(graph);
        assert_eq!(spied.live("vkCreateCommandPool"), pools + 1, "the stream is not idle");
        numbers.expect(50.0 * value, &stream);
        assert_eq!(spied.live("vkCreateCommandPool"), pools);
    }
    Ok(())
}
