//! H, copies from and to pinned host memory: case 78.

use accelerator_core::{DriverErrorKind, Error, KIB, MIB};

use super::context::{Device, all_are, are, holds};
use super::pinned::place;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(78, "not_reused_while_a_copy_is_in_flight", not_reused_in_flight).needs(&[Capability::Bytes])]
}

const SIZE: u64 = 300 * KIB;
const BYTES: usize = SIZE as usize;

fn not_reused_in_flight(context: &Context) -> Outcome {
    let device = context.device()?;
    source_in_flight(device)?;
    destination_in_flight(device)?;
    given_back_behind_the_copy(context)?;
    waits_for_the_copy_alone(device)?;
    host_and_device_take_turns(device)?;
    streams_take_turns(device)?;
    ranges(device)?;
    captured(device)?;
    what_fails(device)?;
    other_devices(context)?;
    device.check_consistency();
    Ok(())
}

fn source_in_flight(device: Device) -> Outcome {
    let (own, slow) = (device.default_stream(), device.side_stream()?);
    let source = device.pinned(SIZE, 7)?;
    let taken = place(&source);
    let mut buffer = device.filled(SIZE, 0)?;
    device.hold(slow);
    let synchronised = device.calls(Call::Synchronize) + device.calls(Call::WaitHost);
    buffer.copy_from_pinned(0, &source, 0..SIZE, slow)?;
    assert_eq!(device.calls(Call::Synchronize) + device.calls(Call::WaitHost), synchronised, "asynchronous");
    drop(source);
    let mut next = device.allocate_host(SIZE)?;
    assert_ne!(place(&next), taken, "its bytes have not been read yet");
    next.bytes_mut()?.fill(9);
    device.release(slow);
    holds(&buffer, 7, slow, "the copy must contain the bytes at the time of the call")?;
    drop(buffer);
    let again = device.allocate_host(SIZE)?;
    assert_eq!(place(&again), taken, "free once the copy is done");
    Ok(own.synchronize()?)
}

fn destination_in_flight(device: Device) -> Outcome {
    let slow = device.side_stream()?;
    let buffer = device.filled(SIZE, 5)?;
    let mut destination = device.pinned(SIZE, 0)?;
    let taken = place(&destination);
    device.hold(slow);
    buffer.copy_to_pinned(0..SIZE, &mut destination, 0, slow)?;
    drop((destination, buffer));
    let next = device.pinned(SIZE, 1)?;
    assert_ne!(place(&next), taken, "it has not been written yet");
    device.release(slow);
    slow.synchronize()?;
    all_are(next.bytes()?, 1, "the late copy wrote to a reused block")?;
    Ok(())
}

/// With a cache limit of 0, a block goes back to the driver, which poisons it, but only once the copy is done.
fn given_back_behind_the_copy(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "pinned_max_cached_size_mb:0")?;
    let slow = device.side_stream()?;
    let (source, mut destination) = (device.pinned(SIZE, 7)?, device.pinned(SIZE, 0)?);
    let mut buffer = device.filled(SIZE, 0)?;
    device.backend().start_quarantine();
    device.hold(slow);
    buffer.copy_from_pinned(0, &source, 0..SIZE, slow)?;
    buffer.copy_to_pinned(0..SIZE, &mut destination, 0, slow)?;
    drop((source, destination));
    drop(device.allocate_host(1)?);
    device.host_allocator().empty_cache()?;
    assert_eq!(device.calls(Call::DeallocHost), 1, "only the unused block is returned");
    device.release(slow);
    holds(&buffer, 7, slow, "the late copy finds the bytes of its source")?;
    device.host_allocator().empty_cache()?;
    assert_eq!(device.calls(Call::DeallocHost), 3);
    assert_eq!(device.backend().check_quarantine()?, []);
    assert_eq!(device.backend().misuses(), 0);
    Ok(())
}

fn waits_for_the_copy_alone(device: Device) -> Outcome {
    let slow = device.side_stream()?;
    let buffer = device.filled(SIZE, 3)?;
    let (mut later, mut destination) = (device.filled(SIZE, 0)?, device.pinned(SIZE, 0)?);
    device.hold(slow);
    buffer.copy_to_pinned(0..SIZE, &mut destination, 0, slow)?;
    later.fill(1, slow)?;
    let behind = device.recorded(slow)?;
    all_are(destination.bytes()?, 3, "the copy is made before its bytes are returned")?;
    assert!(!behind.is_complete()?, "later work must not be waited for");
    let calls = device.all_calls();
    assert_eq!(destination.slice::<u16>()?, [0x0303; BYTES / 2]);
    assert_eq!(device.all_calls(), calls, "waits only once");
    let taken = place(&destination);
    drop(destination);
    let next = device.allocate_host(SIZE)?;
    assert_eq!(place(&next), taken, "after the wait the block is free at once");
    device.release(slow);
    Ok(slow.synchronize()?)
}

fn host_and_device_take_turns(device: Device) -> Outcome {
    let slow = device.side_stream()?;
    let mut source = device.pinned(SIZE, 7)?;
    let mut buffer = device.filled(SIZE, 0)?;
    device.hold(slow);
    buffer.copy_from_pinned(0, &source, 0..SIZE, slow)?;
    let waits = device.calls(Call::WaitHost);
    all_are(source.bytes()?, 7, "a read by the host need not wait for reads by streams")?;
    assert_eq!(device.calls(Call::WaitHost), waits);
    source.bytes_mut()?.fill(8);
    assert_eq!(device.calls(Call::WaitHost), waits + 1, "a write by the host must wait");
    buffer.copy_from_pinned(0, &source, 0..SIZE / 2, slow)?;
    source.slice_mut::<u64>()?.fill(0);
    device.release(slow);
    let mut bytes = vec![0; BYTES];
    buffer.read(0, &mut bytes, slow)?;
    assert!(bytes[..BYTES / 2].iter().all(|byte| *byte == 8) && bytes[BYTES / 2..].iter().all(|b| *b == 7));

    // For a stream whose use was recorded by hand, all its work so far is waited for.
    device.hold(slow);
    source.record_use(slow)?;
    buffer.fill(1, slow)?;
    let noted = device.recorded(slow)?;
    source.bytes_mut()?.fill(1);
    assert!(noted.is_complete()?);
    device.release(slow);
    Ok(())
}

/// Checks that a stream that reads and one that writes are ordered by the calls, on the device and without the host.
fn streams_take_turns(device: Device) -> Outcome {
    let (one, two) = (device.side_stream()?, device.side_stream()?);
    let mut pinned = device.pinned(SIZE, 1)?;
    let (mut first, mut third) = (device.filled(SIZE, 0)?, device.filled(SIZE, 0)?);
    let second = device.filled(SIZE, 2)?;
    device.hold(one);
    first.copy_from_pinned(0, &pinned, 0..SIZE, one)?;
    second.copy_to_pinned(0..SIZE, &mut pinned, 0, two)?;
    third.copy_from_pinned(0, &pinned, 0..SIZE, one)?;
    assert!(!device.recorded(two)?.is_complete()?, "the write must wait for the read");
    device.release(one);
    holds(&first, 1, one, "the first copy comes before the write")?;
    holds(&third, 2, one, "the third copy comes after the write")?;
    all_are(pinned.bytes()?, 2, "the copy is made before its bytes are returned")?;
    Ok(())
}

fn ranges(device: Device) -> Outcome {
    let stream = device.default_stream();
    let (mut pinned, mut buffer) = (device.pinned(100, 1)?, device.filled(100, 2)?);
    buffer.copy_from_pinned(90, &pinned, 0..10, stream)?;
    buffer.copy_to_pinned(80..100, &mut pinned, 80, stream)?;
    let expected: Vec<u8> = (0..100).map(|place| if (80..90).contains(&place) { 2 } else { 1 }).collect();
    are(pinned.bytes()?, &expected, "copies write to the ranges that they are given")?;
    let copies = device.calls(Call::Copy);
    buffer.copy_from_pinned(100, &pinned, 100..100, stream)?;
    assert_eq!(device.calls(Call::Copy), copies, "a copy of no bytes makes no call");
    #[expect(clippy::reversed_empty_ranges, reason = "to be refused")]
    let outside = [(0, 0..101), (1, 0..100), (0, 5..3), (101, 0..0), (0, u64::MAX..1), (u64::MAX, 0..1)];
    for (offset, range) in outside {
        let from = buffer.copy_from_pinned(offset, &pinned, range.clone(), stream);
        assert!(matches!(from, Err(Error::OutOfBounds { .. })), "{offset} {range:?}: {from:?}");
        let to = buffer.copy_to_pinned(range.clone(), &mut pinned, offset, stream);
        assert!(matches!(to, Err(Error::OutOfBounds { .. })), "{range:?} {offset}: {to:?}");
    }
    assert_eq!(device.calls(Call::Copy), copies);
    assert!(matches!(pinned.slice::<u64>(), Err(Error::ElementSize { size: 100, element: 8 })));
    Ok(())
}

fn captured(device: Device) -> Outcome {
    let stream = device.side_stream()?;
    let mut pinned = device.pinned(SIZE, 1)?;
    let mut buffer = device.filled(SIZE, 0)?;
    let captured = device.claim_capture(stream);
    let submitted = || device.calls(Call::Copy) + device.calls(Call::Record) + device.calls(Call::Wait);
    let before = submitted();
    let refused =
        |result| matches!(result, Err(Error::Driver { source, .. }) if source.kind == DriverErrorKind::Unsupported);
    assert!(refused(buffer.copy_from_pinned(0, &pinned, 0..SIZE, stream)));
    assert!(refused(buffer.copy_to_pinned(0..SIZE, &mut pinned, 0, stream)));
    pinned.record_use(stream)?; // done by another library, which is responsible for the order
    assert!(refused(pinned.bytes().map(drop)), "the host cannot wait for a capture");
    assert!(refused(pinned.bytes_mut().map(drop)));
    assert_eq!(submitted(), before, "no work becomes part of the capture");
    drop(captured);
    buffer.copy_from_pinned(0, &pinned, 0..SIZE, stream)?;
    pinned.bytes_mut()?.fill(2);
    holds(&buffer, 1, stream, "the copy finds the bytes of its time")?;
    Ok(())
}

fn what_fails(device: Device) -> Outcome {
    let slow = device.side_stream()?;
    let mut pinned = device.pinned(SIZE, 7)?;
    let taken = place(&pinned);
    let mut buffer = device.filled(SIZE, 0)?;
    for call in [Call::Copy, Call::IsCapturing] {
        device.backend().fail_next(call, DriverErrorKind::Other);
        assert!(buffer.copy_from_pinned(0, &pinned, 0..SIZE, slow).is_err());
        holds(&buffer, 0, slow, "nothing was copied")?;
    }
    // The stream gets the copy but no event after it, so the copy must be done before the error is returned.
    device.hold(slow);
    device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    assert!(buffer.copy_from_pinned(0, &pinned, 0..SIZE, slow).is_err());
    pinned.bytes_mut()?.fill(8);
    device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    assert!(buffer.copy_to_pinned(0..SIZE, &mut pinned, 0, slow).is_err());
    all_are(pinned.bytes()?, 7, "the copy is made before its bytes are returned")?;

    // A wait that fails gives no access to the bytes, and can be tried again.
    buffer.copy_to_pinned(0..SIZE, &mut pinned, 0, slow)?;
    for _ in 0..2 {
        device.backend().fail_next(Call::WaitHost, DriverErrorKind::Other);
        assert!(pinned.bytes().is_err());
        device.backend().fail_next(Call::WaitHost, DriverErrorKind::Other);
        assert!(pinned.bytes_mut().is_err());
    }
    all_are(pinned.bytes()?, 7, "the copy is made before its bytes are returned")?;

    // If the end of a use cannot be recorded when the buffer is dropped, the block is kept until it can be.
    pinned.record_use(slow)?;
    device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    drop(pinned);
    let calls = device.calls(Call::Record);
    device.release(slow);
    slow.synchronize()?;
    let next = device.allocate_host(1)?;
    assert_eq!(device.calls(Call::Record), calls + 1, "the record is tried again");
    slow.synchronize()?;
    drop(next);
    let again = device.allocate_host(SIZE)?;
    assert_eq!(place(&again), taken, "the block is not lost");
    Ok(())
}

fn other_devices(context: &Context) -> Outcome {
    let (here, elsewhere) = (context.device()?, context.device()?);
    let (mut pinned, mut foreign) = (here.pinned(100, 1)?, elsewhere.pinned(100, 1)?);
    let mut buffer = here.filled(100, 0)?;
    let (own, other) = (here.default_stream(), elsewhere.default_stream());
    let results = [
        pinned.record_use(other),
        buffer.copy_from_pinned(0, &foreign, 0..1, own),
        buffer.copy_from_pinned(0, &pinned, 0..1, other),
        buffer.copy_to_pinned(0..1, &mut foreign, 0, own),
        buffer.copy_to_pinned(0..1, &mut pinned, 0, other),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert!(matches!(result, Err(Error::DeviceMismatch { .. })), "{number}: {result:?}");
    }
    Ok(())
}
