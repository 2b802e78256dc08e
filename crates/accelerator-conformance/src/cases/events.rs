//! A, order on and between streams, and events: cases 6 to 12 and 15.

use accelerator_core::{Backend, DriverErrorKind, Error, Event, EventFlags, MIB};

use super::context::{Device, Driver, becomes_idle, bytes_of, holds};
use super::{Case, Context, Outcome};
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(6, "first_in_first_out", first_in_first_out).of_any_policy().needs(&[Capability::Bytes]),
        Case::new(7, "wait_orders_two_streams", wait_orders_two_streams).of_any_policy().needs(&[Capability::Bytes]),
        Case::new(8, "query_and_synchronize", query_and_synchronize).needs(&[Capability::Execution]),
        Case::new(9, "unrecorded_event_is_complete", unrecorded_event_is_complete),
        Case::new(10, "elapsed_time", elapsed_time).needs(&[Capability::Execution]),
        Case::new(11, "recorded_twice_means_the_last", recorded_twice_means_the_last).of_any_policy(),
        Case::new(12, "event_on_another_device", event_on_another_device),
        Case::new(15, "event_dropped_while_pending", event_dropped_while_pending),
    ]
}

fn first_in_first_out(context: &Context) -> Outcome {
    let device = context.device()?;
    for stream in [device.default_stream(), device.side_stream()?] {
        let mut source = device.buffer(MIB, stream)?;
        let mut copies = Vec::new();
        for value in 0..32 {
            source.fill(value, stream)?;
            let mut copy = device.buffer(MIB, stream)?;
            copy.copy_from(&source, stream)?;
            copies.push(copy);
        }
        source.write(0, &[99; 4096], stream)?;
        for (value, copy) in copies.iter().enumerate() {
            holds(copy, value as u8, stream, &format!("copy {value} contains the bytes of its time"))?;
        }
        let bytes = bytes_of(&source, stream)?;
        assert!(bytes[..4096].iter().all(|byte| *byte == 99) && bytes[4096..].iter().all(|byte| *byte == 31));
    }
    Ok(())
}

fn wait_orders_two_streams(context: &Context) -> Outcome {
    let device = context.device()?;
    let (producer, consumer) = (device.side_stream()?, device.side_stream()?);
    let mut source = device.filled(4 * MIB, 0)?;
    let mut copy = device.filled(4 * MIB, 0)?;
    for value in 1..20 {
        // In every fourth round the producer is certainly late; otherwise the device decides.
        if value % 4 == 0 {
            device.hold(producer);
        }
        source.fill(value, producer)?;
        if value % 2 == 0 {
            consumer.wait_event(&device.recorded(producer)?)?;
        } else {
            consumer.wait_stream(producer)?;
        }
        copy.copy_from(&source, consumer)?;
        let copied = device.recorded(consumer)?;
        if value % 4 == 0 {
            assert!(!copied.is_complete()?, "the consumer must wait for the producer");
            device.release(producer);
        }
        holds(&copy, value, consumer, "the copy is made after the fill")?;
        producer.wait_event(&copied)?;
    }
    device.synchronize()?;
    Ok(())
}

fn query_and_synchronize(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    device.hold(stream);
    let event = device.recorded(stream)?;
    assert!(!event.is_complete()? && !stream.is_idle()?);
    device.release(stream);
    event.synchronize()?;
    assert!(event.is_complete()?);
    stream.synchronize()?;
    assert!(becomes_idle(stream)?);

    device.hold(stream);
    let (first, second) = (device.recorded(stream)?, device.recorded(stream)?);
    first.synchronize()?;
    assert!(first.is_complete()? && !second.is_complete()?, "waits only up to the event");
    stream.synchronize()?;
    assert!(second.is_complete()?);
    let third = device.recorded(stream)?;
    assert!(!third.is_complete()?);
    device.synchronize()?;
    assert!(third.is_complete()?);
    device.release(stream);

    if context.offers(Capability::Bytes) {
        complete_means_visible(device)?;
    }
    Ok(())
}

/// Checks that once an event is complete, the results of the work before it are visible on any stream.
fn complete_means_visible(device: Device) -> Outcome {
    let (stream, reader) = (device.side_stream()?, device.side_stream()?);
    let mut buffer = device.filled(8 * MIB, 0)?;
    for value in 1..8 {
        buffer.fill(0, stream)?;
        buffer.fill(value, stream)?;
        let event = device.recorded(stream)?;
        while !event.is_complete()? {
            std::thread::yield_now();
        }
        holds(&buffer, value, reader, "the event is complete, but the fill is not visible")?;
    }
    stream.synchronize()?;
    assert!(becomes_idle(stream)?);
    Ok(())
}

fn unrecorded_event_is_complete(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    let calls = device.all_calls();
    let event = device.plain_event();
    assert!(event.is_complete()?);
    event.synchronize()?;
    event.wait(stream)?;
    assert_eq!(device.all_calls(), calls, "it needs no driver");
    let native = device.backend().inner().event(EventFlags::default())?;
    assert!(device.backend().inner().is_complete(&native)?, "an unrecorded event of the driver must be complete");
    device.backend().inner().wait_host(&native)?;
    let plain = EventFlags::default();
    event_with(device, EventFlags { blocking: true, ..plain })?;
    event_with(device, EventFlags { interprocess: true, ..plain })
}

/// Checks an event with these flags. A driver may lack interprocess events, but it must say so. All others work like
/// plain ones.
fn event_with(device: Device, flags: EventFlags) -> Outcome {
    let (event, stream) = (device.event(flags), device.side_stream()?);
    assert!(event.is_complete()? && event.id() == 0);
    match event.record(stream) {
        Err(Error::Driver { source, .. }) if flags.interprocess => {
            assert_eq!(source.kind, DriverErrorKind::Unsupported);
            assert!(event.is_complete()?, "it was not recorded");
            Ok(())
        }
        recorded => Ok(recorded.and_then(|()| event.synchronize())?),
    }
}

fn elapsed_time(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    let timing = || device.event(EventFlags::TIMING);
    let (start, end) = (timing(), timing());

    refused(&start, &device.plain_event(), "both events must be made with timing enabled")?;
    refused(&device.plain_event(), &end, "both events must be made with timing enabled")?;
    refused(&start, &end, "both events must be recorded first")?;
    start.record(stream)?;
    refused(&start, &end, "both events must be recorded first")?;
    device.hold(stream);
    end.record(stream)?;
    refused(&start, &end, "both events must be complete first: synchronize them")?;
    device.release(stream);
    end.synchronize()?;
    assert!(start.elapsed_time(&end)? >= 0.0);

    let other = context.device()?.event(EventFlags::TIMING);
    assert!(matches!(start.elapsed_time(&other), Err(Error::DeviceMismatch { .. })));

    if context.offers(Capability::Bytes) && context.offers(Capability::Clock) {
        let mut buffer = device.buffer(16 * MIB, stream)?;
        start.record(stream)?;
        (0..8).try_for_each(|value| buffer.fill(value, stream))?;
        end.record(stream)?;
        end.synchronize()?;
        let (forth, back) = (start.elapsed_time(&end)?, end.elapsed_time(&start)?);
        assert!(forth > 0.0 && forth < 60_000.0, "{forth} milliseconds for eight fills");
        assert!((forth + back).abs() < 1e-3, "{forth} forward and {back} backward");
    }
    Ok(())
}

fn refused(start: &Event<Driver>, end: &Event<Driver>, why: &str) -> Outcome {
    match start.elapsed_time(end) {
        Err(error @ Error::ElapsedTime(_)) => assert_eq!(error.to_string(), format!("elapsed time: {why}")),
        other => return Err(format!("expected `{why}`, not {other:?}").into()),
    }
    Ok(())
}

fn recorded_twice_means_the_last(context: &Context) -> Outcome {
    let device = context.device()?;
    let (slow, fast, waiting) = (device.side_stream()?, device.side_stream()?, device.side_stream()?);
    device.hold(slow);
    let event = device.recorded(slow)?;
    assert!(!event.is_complete()?);
    event.wait(waiting)?;
    event.record(fast)?;
    event.synchronize()?;
    assert!(event.is_complete()?, "the last record counts");
    let behind = device.recorded(waiting)?;
    assert!(!behind.is_complete()?, "a wait for the first record must remain");
    event.record(slow)?;
    assert!(!event.is_complete()?);
    device.release(slow);
    event.synchronize()?;
    behind.synchronize()?;

    if context.offers(Capability::Bytes) {
        let mut source = device.filled(8 * MIB, 0)?;
        let mut copy = device.filled(8 * MIB, 0)?;
        for value in 1..8 {
            source.fill(value, slow)?;
            event.record(slow)?;
            event.wait(waiting)?;
            event.record(fast)?;
            copy.copy_from(&source, waiting)?;
            holds(&copy, value, waiting, "a later record must not end an earlier wait")?;
        }
    }
    Ok(())
}

fn event_on_another_device(context: &Context) -> Outcome {
    let (here, there) = (context.device()?, context.device()?);
    let event = here.recorded(here.default_stream())?;
    let foreign = there.side_stream()?;
    there.hold(foreign);
    assert!(matches!(event.record(foreign), Err(Error::DeviceMismatch { .. })));
    assert!(matches!(event.wait(foreign), Err(Error::DeviceMismatch { .. })));
    assert!(matches!(foreign.wait_event(&event), Err(Error::DeviceMismatch { .. })));
    assert!(matches!(foreign.wait_stream(here.default_stream()), Err(Error::DeviceMismatch { .. })));
    event.synchronize()?;
    assert!(event.is_complete()?, "a refused record changes nothing");
    assert!(becomes_idle(foreign)?, "a refused wait gives the stream nothing to do");
    there.release(foreign);
    Ok(())
}

fn event_dropped_while_pending(context: &Context) -> Outcome {
    let device = context.device()?;
    let (slow, waiting) = (device.side_stream()?, device.side_stream()?);
    device.hold(slow);
    let event = device.recorded(slow)?;
    event.wait(waiting)?;
    drop(event);
    let behind = device.recorded(waiting)?;
    assert!(!behind.is_complete()?, "the wait outlives the event");
    device.release(slow);
    behind.synchronize()?;
    drop(device.recorded(slow)?);
    device.synchronize()?;
    assert!(becomes_idle(slow)? && becomes_idle(waiting)?);
    Ok(())
}
