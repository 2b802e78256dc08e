//! Graphs do what was captured, each time that they are launched.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, DriverResult, EventFlags, Place, StreamKind};
use accelerator_opencl::cl3::kernel;
use accelerator_opencl::{OpenClPtr, OpenClStream};
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

use crate::captured::{LEN, Memory, launch, with};
use crate::kernels::Kernel;
use crate::rig::{Outcome, UserEvent, bytes, called, read_raw};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with("graphs::replay_what_was_captured", replay),
        with("graphs::random_work_equals_a_model", random),
        with("graphs::are_work_of_their_stream", between_work),
        with("graphs::fork_and_join", fork_and_join),
        with("graphs::run_one_launch_after_another", two_streams),
        with("graphs::keep_their_kernels", kernels),
        with("graphs::refuse_what_cannot_be_captured", refusals),
        with("graphs::refuse_pageable_memory", pageable),
        with("graphs::must_be_joined", unjoined),
        with("graphs::end_with_their_stream", abandoned),
        with("graphs::may_be_dropped_while_they_run", dropped),
    ]
}

/// Each command depends on the one before, and overwrites what that one would read if it ran later. The input changes.
fn replay(memory: &Memory, stream: &OpenClStream, _: &OpenClStream) -> Outcome {
    let graphs = memory.begin(stream)?;
    assert!(memory.backend.is_capturing(stream)? && graphs.capture_of(stream)?.is_some());
    memory.read_in(memory.x, stream)?;
    memory.move_on(memory.y, memory.x, stream)?;
    memory.fill(memory.x, 0xee, stream)?;
    memory.move_on(memory.z, memory.y, stream)?;
    memory.fill(memory.y, 0xee, stream)?;
    memory.write_out(memory.z, stream)?;
    memory.fill(memory.z, 0xee, stream)?;
    let graph = graphs.end(stream)?;
    assert!(!memory.backend.is_capturing(stream)? && graphs.capture_of(stream)?.is_none());
    memory.expect(0, stream); // captured, so not run
    for value in 0..20 {
        memory.set(value);
        launch(&graph, stream)?;
        memory.expect(value, stream);
    }
    Ok(())
}

/// Captured copies and fills of any length at any place do the same as on the host.
fn random(memory: &Memory, stream: &OpenClStream, side: &OpenClStream) -> Outcome {
    let mut random = Rng::with_seed(3);
    let mut model = vec![0_u8; 2 * LEN as usize];
    memory.fill(memory.y, 0, stream)?;
    memory.backend.synchronize(stream)?;
    for graph in 0..20 {
        let mut work: Vec<(Range<usize>, Result<usize, u8>)> = Vec::new();
        let graphs = memory.begin(stream)?;
        // The streams take turns.
        for (turn, captured) in [stream, side].into_iter().cycle().take(10).enumerate() {
            if turn > 0 {
                memory.wait(captured, [side, stream][turn % 2])?;
            }
            for _ in 0..random.usize(1..6) {
                let bits = random.u64(1..15);
                let len = 1 + random.u64(..1 << bits);
                let [to, from] = [0; 2].map(|_| random.u64(..LEN - len));
                let to_x = random.bool();
                let (target, source) = if to_x { (memory.x, memory.y) } else { (memory.y, memory.x) };
                let start = if to_x { to } else { LEN + to } as usize;
                let value = if random.bool() { Ok(()) } else { Err(random.u8(..)) };
                match value {
                    Ok(()) => {
                        let (to, from) = (Place::Device(target.offset(to)), Place::Device(source.offset(from)));
                        // SAFETY: The ranges are inside the memory, and do not overlap.
                        unsafe { memory.backend.copy(to, from, bytes(len), captured) }
                    }
                    // SAFETY: The range is inside the memory.
                    Err(value) => unsafe { memory.backend.fill(target.offset(to), value, bytes(len), captured) },
                }?;
                let from = if to_x { LEN + from } else { from } as usize;
                work.push((start..start + len as usize, value.map(|()| from)));
            }
        }
        memory.wait(stream, side)?;
        let replayed = graphs.end(stream)?;
        for (value, launched) in [(1, stream), (2, side)] {
            memory.fill(memory.x, value, launched)?;
            launch(&replayed, launched)?;
            model[..LEN as usize].fill(value);
            for (to, source) in &work {
                match source {
                    Ok(from) => model.copy_within(*from..from + to.len(), to.start),
                    Err(value) => model[to.clone()].fill(*value),
                }
            }
            for (half, ptr) in model.chunks(LEN as usize).zip([memory.x, memory.y]) {
                assert!(read_raw(&memory.backend, ptr, LEN, launched)? == half, "graph {graph}");
            }
        }
    }
    Ok(())
}

/// A launch follows the earlier work of its stream, and precedes the later. It returns before anything runs.
fn between_work(memory: &Memory, stream: &OpenClStream, _: &OpenClStream) -> Outcome {
    let graphs = memory.begin(stream)?;
    memory.move_on(memory.y, memory.x, stream)?;
    let graph = graphs.end(stream)?;
    for value in 0..20 {
        memory.set(value);
        let (held, _) = UserEvent::ahead_of(&memory.backend, stream)?;
        memory.fill(memory.x, 0xdd, stream)?;
        memory.read_in(memory.x, stream)?;
        launch(&graph, stream)?;
        let launched = memory.recorded(stream)?;
        memory.fill(memory.x, 0xee, stream)?;
        memory.write_out(memory.y, stream)?;
        memory.fill(memory.y, 0xee, stream)?;
        assert!(!memory.backend.is_complete(&launched)?);
        held.let_go()?;
        memory.expect(value, stream);
        assert!(memory.backend.is_complete(&launched)?);
    }
    Ok(())
}

/// Two streams take part in the capture.
fn fork_and_join(memory: &Memory, stream: &OpenClStream, side: &OpenClStream) -> Outcome {
    let graphs = memory.begin(stream)?;
    memory.read_in(memory.x, stream)?;
    memory.wait(side, stream)?;
    assert!(graphs.capture_of(side)? == graphs.capture_of(stream)? && memory.backend.is_capturing(side)?);
    memory.move_on(memory.y, memory.x, side)?;
    memory.move_on(memory.z, memory.x, stream)?;
    let forked = graphs.mark(side)?.unwrap();
    assert_eq!((graphs.precede(&[forked], stream)?, graphs.precede(&[forked], side)?), (vec![false], vec![true]));
    memory.wait(stream, side)?;
    assert_eq!(graphs.precede(&[forked], stream)?, [true]);
    memory.fill(memory.x, 0xee, stream)?;
    memory.write_out(memory.y, stream)?;
    let graph = graphs.end(stream)?;
    for value in 0..20 {
        memory.set(value);
        launch(&graph, side)?;
        memory.expect(value, side);
    }
    Ok(())
}

/// Bytes move on by one place with each launch. Without waiting, all launches are behind a held one.
fn two_streams(memory: &Memory, stream: &OpenClStream, side: &OpenClStream) -> Outcome {
    let (x, y) = (memory.x, memory.y);
    let graphs = memory.begin(stream)?;
    for (to, from) in [(y.offset(1), x), (x, y)] {
        // SAFETY: The ranges are inside the memory.
        unsafe { memory.backend.copy(Place::Device(to), Place::Device(from), bytes(LEN - 1), stream) }?;
    }
    let graph = graphs.end(stream)?;
    memory.fill(x, 0, stream)?;
    memory.fill(y, 7, stream)?;
    memory.backend.synchronize(stream)?;
    let (held, _) = UserEvent::ahead_of(&memory.backend, stream)?;
    for _ in 0..10 {
        for launched in [stream, side, side, stream, side] {
            launch(&graph, launched)?;
        }
    }
    thread::sleep(Duration::from_millis(20));
    assert!(!memory.backend.is_idle(side)?);
    held.let_go()?;
    memory.backend.synchronize(stream)?;
    let moved = read_raw(&memory.backend, x, LEN, side)?;
    assert!(moved[..50] == [7; 50] && moved[50..] == vec![0; LEN as usize - 50], "{:?}", &moved[..60]);
    Ok(())
}

/// Between the captures of a kernel, its arguments change. Then the kernel and its memory objects are released.
fn kernels(memory: &Memory, stream: &OpenClStream, side: &OpenClStream) -> Outcome {
    let source = "kernel void add(global uchar* to, uint by) { to[get_global_id(0)] += by; }";
    let add = Kernel::on(&memory.backend, c"add", source)?;
    let run = |place: OpenClPtr, by: u32, local: Option<&[usize]>, stream: &OpenClStream| -> Result<_, Failed> {
        let argument = memory.backend.kernel_argument(place, LEN as usize)?;
        let object = argument.native();
        // SAFETY: The kernel has such a parameter.
        called(unsafe { kernel::set_kernel_arg(add.0, 0, size_of_val(&object), (&raw const object).cast()) })?;
        // SAFETY: As above.
        called(unsafe { kernel::set_kernel_arg(add.0, 1, 4, (&raw const by).cast()) })?;
        // SAFETY: All arguments are set, and the memory has as many bytes as there are work items.
        Ok(unsafe { stream.launch(add.0, &[LEN as usize], local, &[argument]) })
    };
    let graphs = memory.begin(stream)?;
    memory.read_in(memory.x, stream)?;
    run(memory.x, 1, None, stream)??;
    run(memory.x, 2, Some(&[100]), stream)??;
    is_refused(run(memory.x, 4, Some(&[1, 1]), stream)?);
    memory.move_on(memory.y, memory.x, stream)?;
    run(memory.y, 8, None, stream)??;
    memory.write_out(memory.y, stream)?;
    let graph = graphs.end(stream)?;
    memory.fill(memory.z, 0, side)?;
    run(memory.z, 16, None, side)??;
    assert!(read_raw(&memory.backend, memory.z, LEN, side)? == vec![16; LEN as usize], "not captured, so run");
    drop(add);
    for value in 0..20 {
        memory.set(value);
        launch(&graph, side)?;
        memory.expect(value + 11, side);
    }
    Ok(())
}

#[track_caller]
fn is_refused<T>(answer: DriverResult<T>) {
    assert_eq!(answer.err().map(|error| error.kind), Some(DriverErrorKind::InvalidArgument));
}

/// The capture goes on after each.
fn refusals(memory: &Memory, stream: &OpenClStream, side: &OpenClStream) -> Outcome {
    let backend = &memory.backend;
    let graphs = memory.begin(side)?;
    memory.read_in(memory.x, side)?;
    let other = graphs.end(side)?;

    memory.fill(memory.z, 1, side)?;
    let outside = memory.recorded(side)?;
    memory.begin(stream)?;
    memory.read_in(memory.x, stream)?;
    let event = memory.recorded(stream)?;
    assert_eq!(backend.event_id(&event), 0);
    is_refused(memory.begin(stream));
    is_refused(backend.synchronize(stream));
    is_refused(backend.is_idle(stream));
    is_refused(backend.is_complete(&event));
    is_refused(backend.wait_host(&event));
    is_refused(backend.elapsed_ns(&event, &event));
    is_refused(backend.wait(stream, &outside));
    is_refused(launch(&other, stream));
    backend.wait(stream, &backend.event(EventFlags::default())?)?; // never recorded
    memory.write_out(memory.x, stream)?;
    let graph = graphs.end(stream)?;
    is_refused(backend.is_complete(&event));
    is_refused(backend.wait(side, &event));
    is_refused(graphs.end(stream).map(drop));

    memory.set(4);
    launch(&graph, stream)?;
    backend.record(&event, stream)?;
    backend.wait(side, &event)?;
    backend.wait_host(&event)?;
    memory.expect(4, stream);
    Ok(())
}

fn pageable(memory: &Memory, stream: &OpenClStream, _: &OpenClStream) -> Outcome {
    let mut own = vec![7_u8; LEN as usize];
    let own = Place::Host(NonNull::from(own.as_mut_slice()).cast());
    // SAFETY: One byte before its end.
    let beyond = Place::Host(unsafe { memory.input.add(1) });
    let graphs = memory.begin(stream)?;
    memory.write_out(memory.x, stream)?;
    is_refused(memory.copy(Place::Device(memory.x), own, stream));
    is_refused(memory.copy(Place::Device(memory.x), beyond, stream));
    is_refused(memory.copy(own, Place::Device(memory.x), stream));
    is_refused(memory.copy(own, Place::Host(memory.input), stream));
    let graph = graphs.end(stream)?;
    memory.copy(Place::Device(memory.x), own, stream)?;
    launch(&graph, stream)?;
    memory.expect(7, stream);
    Ok(())
}

/// After the error, both streams run their work again, and capture again.
fn unjoined(memory: &Memory, stream: &OpenClStream, side: &OpenClStream) -> Outcome {
    for is_joined in [false, true] {
        let graphs = memory.begin(stream)?;
        memory.read_in(memory.x, stream)?;
        memory.wait(side, stream)?;
        memory.write_out(memory.x, side)?;
        if !is_joined {
            is_refused(graphs.end(stream).map(drop));
            assert!(!memory.backend.is_capturing(stream)? && !memory.backend.is_capturing(side)?);
            memory.set(2);
            memory.read_in(memory.x, side)?;
            memory.write_out(memory.x, side)?;
            memory.expect(2, side);
            continue;
        }
        memory.wait(stream, side)?;
        let graph = graphs.end(stream)?;
        memory.set(3);
        launch(&graph, stream)?;
        memory.expect(3, stream);
    }
    Ok(())
}

/// A stream is dropped while it captures. The other stream runs its work again.
fn abandoned(memory: &Memory, _: &OpenClStream, side: &OpenClStream) -> Outcome {
    let stream = memory.backend.stream(StreamKind::Default)?;
    memory.begin(&stream)?;
    memory.read_in(memory.x, &stream)?;
    memory.wait(side, &stream)?;
    memory.write_out(memory.x, side)?;
    drop(stream);
    assert!(!memory.backend.is_capturing(side)?);
    memory.set(6);
    memory.read_in(memory.x, side)?;
    memory.write_out(memory.x, side)?;
    memory.expect(6, side);
    Ok(())
}

/// Dropping the graph does not stop it.
fn dropped(memory: &Memory, stream: &OpenClStream, _: &OpenClStream) -> Outcome {
    for value in 0..20 {
        let graphs = memory.begin(stream)?;
        memory.read_in(memory.x, stream)?;
        for (to, from) in [(memory.y, memory.x), (memory.z, memory.y)].repeat(20) {
            memory.move_on(to, from, stream)?;
        }
        memory.write_out(memory.z, stream)?;
        let graph = graphs.end(stream)?;
        memory.set(value);
        launch(&graph, stream)?;
        drop(graph);
        memory.expect(value, stream);
    }
    Ok(())
}
