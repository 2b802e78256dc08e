//! A, devices and their streams: cases 1 to 5, 13 and 14.

use accelerator_core::{DriverErrorKind, Error, STREAMS_PER_PRIORITY, Stream, StreamId};

use super::context::{Device, Driver, becomes_idle, holds};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::suite::Capability;

const CURRENT_DEVICE: &str =
    "the current device belongs to the facade, the crate `accelerator`, whose own tests cover it";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(1, "device_count_and_open", device_count_and_open),
        Case::new(2, "bad_index_is_an_error", bad_index_is_an_error),
        Case::elsewhere(3, "set_stream_switches_the_device", CURRENT_DEVICE),
        Case::elsewhere(4, "nested_guards", CURRENT_DEVICE),
        Case::elsewhere(5, "current_device_per_thread", CURRENT_DEVICE),
        Case::new(13, "priorities", priorities),
        Case::new(14, "stream_dropped_with_work_pending", stream_dropped_with_work_pending).of_any_policy(),
    ]
}

fn device_count_and_open(context: &Context) -> Outcome {
    let opener = context.opener();
    let count = opener.probe()?;
    assert!(count > 0, "`probe` returns an error if there is no device");
    assert_eq!(opener.count(), count);
    let [opened, again] = [opener.accelerator(0)?, opener.accelerator(0)?];
    assert_eq!(opened.address, again.address, "a device is opened only once");
    assert_eq!((opened.device.kind, opened.device.index), (opener.kind(), 0));
    let properties = opened.properties;
    assert_eq!(properties, again.properties, "properties are the same at every call");
    assert!(properties.alignment.is_power_of_two());
    assert!(properties.total_memory > 0);
    let memory = opened.memory?;
    assert!(memory.free <= memory.total, "{memory:?}");
    Ok(())
}

fn bad_index_is_an_error(context: &Context) -> Outcome {
    let opener = context.opener();
    let count = opener.probe()?;
    for index in [count, count + 1, u32::MAX] {
        match opener.accelerator(index).map(|opened| opened.device) {
            Err(Error::InvalidDevice { kind, index: named, count: available }) => {
                assert_eq!((kind, named, available), (opener.kind(), index.into(), count));
            }
            other => return Err(format!("expected an invalid device, not {other:?}").into()),
        }
        let refused = opener.open(index).map(drop).map_err(|error| error.kind);
        assert_eq!(refused, Err(DriverErrorKind::InvalidArgument), "`Backend::open({index})`");
    }
    Ok(())
}

fn priorities(context: &Context) -> Outcome {
    let device = context.device()?;
    let (least, greatest) = device.properties().stream_priorities;
    assert!(greatest <= least, "a lower number runs first");
    assert!((greatest..=least).contains(&0), "0 is the priority of the default stream");
    assert_eq!(device.default_stream().priority(), 0);
    assert_eq!(device.default_stream().id(), StreamId::DEFAULT);
    assert_eq!(device.stream(i32::MAX)?.priority(), least);
    assert_eq!(device.stream(i32::MIN)?.priority(), greatest);
    assert_eq!(device.dedicated_stream(i32::MIN)?.priority(), greatest);

    // The pool makes 32 streams and then hands them out again in turn.
    let made = device.calls(Call::Stream);
    let first: Vec<_> = in_turn(device, least)?;
    let second: Vec<_> = in_turn(device, least)?;
    assert!(first.iter().enumerate().all(|(place, stream)| !first[..place].contains(stream)));
    let rotated = usize::from(least == greatest) + 1;
    let expected = (0..STREAMS_PER_PRIORITY).map(|place| first[place]);
    assert!(second.iter().copied().eq(expected), "the second round repeats the first");
    assert_eq!(device.calls(Call::Stream) - made, (STREAMS_PER_PRIORITY - rotated) as u64);
    for stream in first {
        assert_eq!(device.stream_by_id(stream.id()), Some(stream));
        assert!(stream.id() > StreamId::DEFAULT);
    }
    Ok(())
}

fn in_turn(device: Device, priority: i32) -> accelerator_core::Result<Vec<Stream<Driver>>> {
    (0..STREAMS_PER_PRIORITY).map(|_| device.stream(priority)).collect()
}

fn stream_dropped_with_work_pending(context: &Context) -> Outcome {
    let device = context.device()?;
    let bytes = context.offers(Capability::Bytes);
    let mut buffer = device.buffer(4096, device.default_stream())?;
    let (event, id) = {
        let stream = device.side_stream()?;
        device.hold(stream);
        if bytes {
            buffer.fill(7, stream)?;
        }
        (device.recorded(stream)?, stream.id())
    };
    assert!(!event.is_complete()?);
    let again = device.stream_by_id(id).ok_or("the stream outlives its handle")?;
    device.release(again);
    event.synchronize()?;
    assert!(event.is_complete()?);
    again.synchronize()?;
    assert!(becomes_idle(again)?);
    if bytes {
        holds(&buffer, 7, device.default_stream(), "the work was done")?;
    }
    Ok(())
}
