//! Events by the device's clock, and streams that are asked whether they are done.

use std::time::{Duration, Instant};

use accelerator_core::{Accelerator, Event, EventFlags, MIB, Result, Stream};
use accelerator_opencl::OpenCl;
use libtest_mimic::{Failed, Trial};

use crate::rig::{Outcome, UserEvent, becomes_true, check_busy, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("events::time_is_that_of_the_hosts_clock", hosts_clock),
        trial("events::time_grows_with_the_work", growing),
        trial("events::time_between_streams", between_streams),
        trial("events::a_stream_waits_for_another", waiting),
        trial("events::a_stream_is_idle_when_its_work_is_done", idle),
        trial("events::an_event_is_complete_when_its_work_is_done", complete),
    ]
}

const PAUSE: Duration = Duration::from_millis(50);

fn timed(device: &'static Accelerator<OpenCl>, stream: Stream<OpenCl>) -> Result<Event<OpenCl>> {
    let event = device.event(EventFlags::TIMING);
    event.record(stream)?;
    Ok(event)
}

fn hosts_clock() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let outer = Instant::now();
    let start = timed(device, stream)?;
    start.synchronize()?;
    let inner = Instant::now();
    let held = UserEvent::hold(stream)?;
    let end = timed(device, stream)?;
    std::thread::sleep(PAUSE);
    let least = inner.elapsed();
    held.let_go()?;
    end.synchronize()?;
    let (most, told) = (outer.elapsed(), start.elapsed_time(&end)?);
    // Two clocks may differ by a little.
    let (least, most) = (least.as_secs_f64() * 999.0, most.as_secs_f64() * 1_001.0);
    assert!((least..=most).contains(&told), "{told} ms, though by the host's clock {least} to {most}");
    assert_eq!(end.elapsed_time(&start)?, -told);
    assert_eq!(start.elapsed_time(&start)?, 0.0);
    Ok(())
}

fn growing() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(32 * MIB, stream)?;
    buffer.fill(0, stream)?;
    let mut time = |fills: u8| -> Result<f64, Failed> {
        let start = timed(device, stream)?;
        for value in 0..fills {
            buffer.fill(value, stream)?;
        }
        let end = timed(device, stream)?;
        end.synchronize()?;
        let time = start.elapsed_time(&end)?;
        assert!(time >= 0.0, "{time}");
        Ok(time)
    };
    // The least of several: other trials run beside this one.
    let (mut none, mut some) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        none = none.min(time(0)?);
        some = some.min(time(10)?);
    }
    assert!(none < some, "{none} ms for nothing and {some} ms for ten fills");
    Ok(())
}

fn between_streams() -> Outcome {
    let device = device()?;
    let (one, other) = (device.stream(0)?, device.stream(0)?);
    let start = timed(device, one)?;
    other.wait_event(&start)?;
    let held = UserEvent::hold(other)?;
    let end = timed(device, other)?;
    start.synchronize()?;
    std::thread::sleep(PAUSE);
    held.let_go()?;
    end.synchronize()?;
    let told = start.elapsed_time(&end)?;
    assert!(told >= PAUSE.as_secs_f64() * 999.0, "{told} ms");
    Ok(())
}

fn waiting() -> Outcome {
    let device = device()?;
    let (first, second) = (device.stream(0)?, device.stream(0)?);
    let mut buffer = device.allocate(5 * MIB, first)?;
    let reached = device.event(EventFlags::default());
    let held = UserEvent::hold(first)?;
    buffer.fill(1, first)?;
    reached.record(first)?;
    second.wait_event(&reached)?;
    // What is recorded later is not what it waits for.
    let later = UserEvent::hold(first)?;
    reached.record(first)?;
    buffer.fill(2, second)?;
    check_busy(second)?;
    held.let_go()?;
    second.synchronize()?;
    assert!(!reached.is_complete()?);
    later.let_go()?;
    assert!(buffer.slice::<u8>()?.to_vec(second)? == vec![2; 5 << 20]);
    Ok(())
}

fn idle() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    assert!(stream.is_idle()?, "at first");
    for round in 0..10 {
        let mut buffer = device.allocate(5 * MIB, stream)?;
        let held = UserEvent::hold(stream)?;
        buffer.fill(round, stream)?;
        check_busy(stream)?;
        becomes_true(|| Ok(other.is_idle()?))?; // that one has only the event of the last round's buffer
        held.let_go()?;
        for _ in 0..10 {
            becomes_true(|| Ok(stream.is_idle()?))?; // a queue that others have is given a moment each time
        }
        // It is true: what was given to the stream can be seen from another.
        assert!(buffer.slice::<u8>()?.to_vec(other)? == vec![round; 5 << 20]);
        for _ in 0..100 {
            assert!(other.is_idle()?, "its own work is known to be done");
        }
    }
    Ok(())
}

fn complete() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let event = device.event(EventFlags::default());
    for round in 0..10 {
        let mut buffer = device.allocate(5 * MIB, stream)?;
        let held = UserEvent::hold(stream)?;
        buffer.fill(round, stream)?;
        event.record(stream)?;
        // Behind the event, and held up by another that comes later.
        let behind = UserEvent::hold(stream)?;
        check_busy(stream)?;
        assert!(!event.is_complete()?);
        held.let_go()?;
        becomes_true(|| Ok(event.is_complete()?))?;
        check_busy(stream)?; // there is more behind it
        assert!(buffer.slice::<u8>()?.to_vec(other)? == vec![round; 5 << 20]);
        behind.let_go()?;
        becomes_true(|| Ok(stream.is_idle()?))?;
        assert!(event.is_complete()?);
    }
    Ok(())
}
