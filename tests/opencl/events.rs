//! Event times on the device's clock, and querying streams for completion.

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
    // The two clocks may differ slightly.
    let (least, most) = (least.as_secs_f64() * 999.0, most.as_secs_f64() * 1_001.0);
    assert!((least..=most).contains(&told), "{told} ms, but {least} to {most} by the host's clock");
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
    // The minimum of several measurements, because other trials run concurrently.
    let (mut none, mut some) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        none = none.min(time(0)?);
        some = some.min(time(10)?);
    }
    assert!(none < some, "{none} ms without work and {some} ms with ten fills");
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
    // A wait for the event does not include later recordings of it.
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
        becomes_true(|| Ok(other.is_idle()?))?; // the other stream has only the event of the last round's buffer
        held.let_go()?;
        for _ in 0..10 {
            becomes_true(|| Ok(stream.is_idle()?))?; // an adopted or shared queue takes a moment each time
        }
        // The stream is really idle: another stream sees the results of its work.
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
        // Later work, which a second event holds.
        let behind = UserEvent::hold(stream)?;
        check_busy(stream)?;
        assert!(!event.is_complete()?);
        held.let_go()?;
        becomes_true(|| Ok(event.is_complete()?))?;
        check_busy(stream)?; // there is work after the event
        assert!(buffer.slice::<u8>()?.to_vec(other)? == vec![round; 5 << 20]);
        behind.let_go()?;
        becomes_true(|| Ok(stream.is_idle()?))?;
        assert!(event.is_complete()?);
    }
    Ok(())
}
