//! Level Zero events are signalled once and reset. Ours are recorded any number of times.

use accelerator_core::{Buffer, Event, EventFlags, MIB, Stream};
use accelerator_xpu::Xpu;
use libtest_mimic::{Failed, Trial};

use crate::bytes::OLD_DRIVER;
use crate::control;
use crate::rig::{Device, Outcome, check_all_gone, device, simulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("events::recorded_again_while_waits_are_pending", &[], recorded_again),
        simulated("events::recorded_again_on_an_old_driver", &[OLD_DRIVER], recorded_again),
        simulated("events::dropped_while_waits_are_pending", &[], dropped),
        simulated("events::a_thousand_records_without_a_wait", &[], thousand_records),
        simulated("events::a_thousand_records_on_an_old_driver", &[OLD_DRIVER], thousand_records),
        simulated("events::a_thousand_records_of_one_stream", &[], records_of_one_stream),
        simulated("events::elapsed_time", &[], elapsed_time),
        simulated("events::elapsed_time_of_an_old_driver", &[OLD_DRIVER], elapsed_time),
        simulated("events::threads", &[], threads),
    ]
}

fn buffers<const N: usize>(device: Device, streams: [Stream<Xpu>; N]) -> [Buffer<Xpu>; N] {
    streams.map(|stream| device.allocate(64, stream).unwrap())
}

fn read(buffer: &Buffer<Xpu>, stream: Stream<Xpu>) -> Result<[u8; 64], Failed> {
    let mut read = [0; 64];
    buffer.read(0, &mut read, stream)?;
    Ok(read)
}

/// Waiting for an earlier record covers the work before it, although the device does nothing before the last record.
/// The simulated driver detects Level Zero events that are reset or signalled too early.
fn recorded_again() -> Outcome {
    const WAITERS: usize = 6;
    let device = device()?;
    let first = device.dedicated_stream(0)?;
    let waiters: Vec<_> = (0..WAITERS).map(|_| device.dedicated_stream(0).unwrap()).collect();
    let event = device.event(EventFlags::default());
    let [mut source] = buffers(device, [first]);
    for seed in 0..100 {
        control::seed(seed);
        for stream in waiters.iter().chain([&first]) {
            control::hold(stream.native().native());
        }
        let mut seen = Vec::new();
        for (value, stream) in waiters.iter().enumerate() {
            source.fill(value as u8, first)?;
            event.record(first)?;
            event.wait(*stream)?;
            let [mut copy] = buffers(device, [*stream]);
            copy.copy_from(&source, *stream)?;
            seen.push(copy);
            first.wait_stream(*stream)?; // so that the source is not overwritten before the copy
        }
        for stream in waiters.iter().chain([&first]) {
            control::release(stream.native().native());
        }
        for (value, (copy, stream)) in seen.iter().zip(&waiters).enumerate() {
            assert_eq!(read(copy, *stream)?, [value as u8; 64], "seed {seed}");
        }
    }
    // The stream needs little more than two events for each waiter of a round.
    let events = control::live_events();
    assert!(events <= 64, "{events} events of Level Zero");
    drop(source);
    check_all_gone(device)
}

fn dropped() -> Outcome {
    let device = device()?;
    let [first, second] = [(); 2].map(|()| device.dedicated_stream(0).unwrap());
    let [mut source, mut copy] = buffers(device, [first, second]);
    for seed in 0..100 {
        control::seed(seed);
        control::hold(first.native().native());
        control::hold(second.native().native());
        copy.fill(0, second)?;
        source.fill(1, first)?;
        let event = device.event(EventFlags { enable_timing: seed % 2 == 0, ..EventFlags::default() });
        event.record(first)?;
        event.wait(second)?;
        drop(event);
        copy.copy_from(&source, second)?;
        // Many more events, which would reuse any that the first one released.
        let others: Vec<Event<Xpu>> = (0..20).map(|_| device.event(EventFlags::TIMING)).collect();
        others.iter().try_for_each(|event| event.record(first))?;
        drop(others);
        control::release(first.native().native());
        control::release(second.native().native());
        assert_eq!(read(&copy, second)?, [1; 64], "seed {seed}");
    }
    drop((source, copy));
    check_all_gone(device)
}

/// Records alternate between two streams that wait for each other. An occasional query, as the allocator makes them,
/// lets the simulated device make progress. The host never waits.
fn thousand_records() -> Outcome {
    let device = device()?;
    let [first, second] = [(); 2].map(|()| device.dedicated_stream(0).unwrap());
    let [mut one, mut other] = buffers(device, [first, second]);
    let [there, back, asked] = [(); 3].map(|()| device.event(EventFlags::default()));
    let waits = control::calls_of("zeEventHostSynchronize");
    for round in 0..1000_u32 {
        one.fill(round as u8, first)?;
        there.record(first)?;
        there.wait(second)?;
        other.copy_from(&one, second)?;
        back.record(second)?;
        back.wait(first)?;
        one.fill(0xee, first)?;
        asked.record(first)?;
        for _ in 0..20 {
            asked.is_complete()?;
        }
    }
    assert_eq!(control::calls_of("zeEventHostSynchronize"), waits, "the host waits");
    let events = control::live_events();
    assert!(events <= 64, "{events} events of Level Zero, although the device keeps up");
    assert_eq!(read(&other, second)?, [(999 % 256) as u8; 64]);
    drop((one, other));
    check_all_gone(device)
}

/// The same on a stream that nothing waits for, and that is only asked whether it is idle.
fn records_of_one_stream() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let [mut buffer] = buffers(device, [stream]);
    let events = [(); 3].map(|()| device.event(EventFlags::TIMING));
    for round in 0..1000_usize {
        buffer.fill(round as u8, stream)?;
        events[round % 3].record(stream)?;
        for _ in 0..10 {
            stream.is_idle()?;
        }
    }
    let live = control::live_events();
    assert!(live <= 128, "{live} events of Level Zero, although the device keeps up"); // two pools: one has times
    drop(buffer);
    check_all_gone(device)
}

/// The simulated fill of this many bytes takes 1 µs plus 1 ns for every 16 bytes, a barrier at most 1 µs. The device's
/// clock wraps around 0.2 ms after the process starts, so that the first measurement includes that.
fn elapsed_time() -> Outcome {
    const LEN: u64 = 16 * MIB;
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(LEN, stream)?;
    let fill = 1e-6 * (1_000 + LEN / 16) as f64;
    let events = [(); 6].map(|()| device.event(EventFlags::TIMING));
    for event in &events {
        event.record(stream)?;
        buffer.fill(1, stream)?;
    }
    stream.synchronize()?;
    for (place, (start, end)) in events.iter().zip(&events[1..]).enumerate() {
        let milliseconds = start.elapsed_time(end)?;
        assert!((fill - 1e-4..fill + 0.003).contains(&milliseconds), "{place}: {milliseconds} of {fill}");
        assert_eq!(end.elapsed_time(start)?, -milliseconds);
        assert_eq!(start.elapsed_time(start)?, 0.0);
    }
    let whole = events[0].elapsed_time(&events[5])?;
    assert!((5.0 * fill..5.0 * fill + 0.015).contains(&whole), "{whole}");
    drop(buffer);
    check_all_gone(device)
}

/// Each thread has its own stream and waits for the events of the others.
fn threads() -> Outcome {
    let device = device()?;
    let events: Vec<Event<Xpu>> = (0..4).map(|_| device.event(EventFlags::default())).collect();
    std::thread::scope(|scope| {
        let work = |number: usize| {
            let stream = device.dedicated_stream(0).unwrap();
            let mut buffer = device.allocate(64, stream).unwrap();
            for round in 0..200 {
                buffer.fill(round as u8, stream).unwrap();
                events[number].record(stream).unwrap();
                events[(number + round) % events.len()].wait(stream).unwrap();
                if round % 50 == 0 {
                    events[(number + 1) % events.len()].synchronize().unwrap();
                    assert_eq!(read(&buffer, stream).unwrap(), [round as u8; 64]);
                }
            }
        };
        let threads: Vec<_> = (0..events.len()).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    check_all_gone(device)
}
