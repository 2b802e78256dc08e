//! L, the policy `compact`, which PyTorch does not have: cases 109 to 113.

use accelerator_core::{Backend, Buffer, DevicePtr, DriverErrorKind, Error, MIB, VirtualMemory};

use super::context::{Device, Driver, address, are, holds};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(109, "put_together_out_of_free_chunks", put_together),
        Case::new(110, "same_steps_again_make_no_calls", same_steps_again),
        Case::new(111, "unfinished_bytes_stay_with_their_stream", unfinished_bytes),
        Case::new(112, "empty_cache_returns_all", empty_cache_returns_all),
        Case::new(113, "failure_while_putting_together", failure_while_putting_together),
    ];
    cases.map(|case| case.needs(&[Capability::VirtualMemory]).or_else(works_without)).into()
}

const SETTINGS: &str = "policy:compact";
const PIECE: u64 = 24 * MIB;
const PIECES: u64 = 6;
/// Longer than a piece, and at most as long as half of them together.
const LONG: u64 = 64 * MIB;

/// Where memory cannot be mapped, the policy has no chunks, but it works without error.
fn works_without(context: &Context) -> Outcome {
    let device = context.device_with(512 * MIB, SETTINGS)?;
    for _ in 0..3 {
        let Stage { kept, .. } = Stage::set(context, device)?;
        let long = filled(context, device, LONG, 7)?;
        all_hold(context, device, kept.iter().chain([&long]))?;
        device.check_consistency();
    }
    device.allocator().empty_cache()?;
    assert_eq!(device.reserved(), 0);
    Ok(())
}

/// A buffer and the value that it is filled with, if the memory stores bytes.
type Filled = (Buffer<Driver>, u8);

fn filled(context: &Context, device: Device, bytes: u64, value: u8) -> Result<Filled, Error> {
    let buffer = match context.offers(Capability::Bytes) {
        true => device.filled(bytes, value)?,
        false => device.buffer(bytes, device.default_stream())?,
    };
    Ok((buffer, value))
}

fn all_hold<'a>(context: &Context, device: Device, buffers: impl IntoIterator<Item = &'a Filled>) -> Outcome {
    for (buffer, value) in buffers.into_iter().filter(|_| context.offers(Capability::Bytes)) {
        holds(buffer, *value, device.default_stream(), "the buffer keeps its bytes")?;
    }
    Ok(())
}

/// Live buffers with holes of one piece between them.
struct Stage {
    kept: Vec<Filled>,
    /// The address ranges of `kept`.
    ranges: Vec<(u64, u64)>,
}

impl Stage {
    fn set(context: &Context, device: Device) -> Result<Self, Error> {
        let pieces = (0..PIECES).map(|number| filled(context, device, PIECE, number as u8 + 1));
        let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        let kept: Vec<_> = pieces.into_iter().skip(1).step_by(2).collect();
        let ranges = kept.iter().map(|(buffer, _)| range(buffer)).collect();
        Ok(Self { kept, ranges })
    }
}

fn range(buffer: &Buffer<Driver>) -> (u64, u64) {
    let start = buffer.ptr().map_or(0, DevicePtr::trace_address);
    (start, start + buffer.len())
}

/// A device on which a long buffer does not fit beside the pieces unless it is assembled from holes. If the driver
/// cannot map memory at two addresses, the device has room for the buffer.
fn tight(context: &Context) -> Result<Device, Error> {
    let memory = PIECES * PIECE + 16 * MIB;
    let device = context.device_with(memory, SETTINGS)?;
    match device.backend().virtual_memory().is_some_and(VirtualMemory::maps_twice) {
        true => Ok(device),
        false => context.device_with(memory + LONG, SETTINGS),
    }
}

fn put_together(context: &Context) -> Outcome {
    let device = tight(context)?;
    let Stage { kept, ranges } = Stage::set(context, device)?;
    for round in 0..3 {
        let mut long = filled(context, device, LONG, 100 + round)?;
        let (start, end) = range(&long.0);
        assert!(ranges.iter().all(|(from, to)| *to <= start || end <= *from), "it overlaps another buffer");
        all_hold(context, device, kept.iter().chain([&long]))?;
        if context.offers(Capability::Bytes) {
            bytes_lie_one_behind_the_other(device, &mut long.0)?;
            all_hold(context, device, &kept)?;
        }
        device.check_consistency();
    }
    // The holes can still be used separately.
    let pieces = [20, 21, 22].map(|value| filled(context, device, PIECE, value));
    let pieces = pieces.into_iter().collect::<Result<Vec<_>, _>>()?;
    all_hold(context, device, kept.iter().chain(&pieces))?;
    device.check_consistency();
    Ok(())
}

/// Checks that each part of a buffer keeps its own bytes, and that copies may cross the borders of chunks.
fn bytes_lie_one_behind_the_other(device: Device, long: &mut Buffer<Driver>) -> Outcome {
    const STEP: u64 = MIB + 512;
    let stream = device.default_stream();
    let pattern: Vec<u8> = (0..STEP).map(|place| (place % 251) as u8).collect();
    let starts: Vec<u64> = (0..long.len() / STEP).map(|number| number * STEP).collect();
    for (number, start) in starts.iter().enumerate() {
        let mut bytes = pattern.clone();
        bytes[0] = number as u8;
        long.write(*start, &bytes, stream)?;
    }
    for (number, start) in starts.iter().enumerate() {
        let mut bytes = vec![0; STEP as usize];
        long.read(*start, &mut bytes, stream)?;
        let mut expected = pattern.clone();
        expected[0] = number as u8;
        are(&bytes, &expected, &format!("the part at {start} keeps its own bytes"))?;
    }
    Ok(())
}

fn same_steps_again(context: &Context) -> Outcome {
    let device = context.device_with(512 * MIB, SETTINGS)?;
    let mut calls = Vec::new();
    for _ in 0..16 {
        let before = device.all_calls();
        let mut live = Vec::new();
        for mib in [5, 30, 1, 64, 12, 3, 26, 90, 1, 40] {
            live.push(device.alloc(mib * MIB)?);
        }
        let long = live.into_iter().enumerate().partition::<Vec<_>, _>(|(number, _)| number % 2 == 0);
        device.free_all(long.0.into_iter().map(|(_, allocation)| allocation))?;
        let mut late = vec![device.alloc(100 * MIB)?, device.alloc(27 * MIB)?, device.alloc(512)?];
        device.free_all(long.1.into_iter().map(|(_, allocation)| allocation))?;
        late.push(device.alloc(130 * MIB)?);
        device.free_all(late)?;
        calls.push(device.all_calls() - before);
        device.check_consistency();
    }
    // Memory with one address only moves more often before it is where it stays.
    assert!(calls[0] > 0 && calls.ends_with(&[0, 0, 0]), "driver calls of each round: {calls:?}");
    Ok(())
}

fn unfinished_bytes(context: &Context) -> Outcome {
    let device = context.device_with(3 * PIECE + 16 * MIB, SETTINGS)?;
    let (late, other) = (device.side_stream()?, device.side_stream()?);
    let mut copy = filled(context, device, PIECE, 0)?.0;
    let mut source = device.buffer(PIECE, late)?;
    let unfinished = range(&source);
    if context.offers(Capability::Bytes) {
        source.fill(1, late)?;
        device.hold(late);
        copy.copy_from(&source, late)?;
    } else {
        device.hold(late);
    }
    drop(source);
    let waits = device.calls(Call::Wait);
    let mut next = device.buffer(PIECE, other)?;
    let (start, end) = range(&next);
    if start < unfinished.1 && unfinished.0 < end {
        assert!(
            device.calls(Call::Wait) > waits,
            "its stream is not done with it, and no stream waits for that on the device"
        );
        assert!(!device.recorded(other)?.is_complete()?, "the new owner must run after the copy");
    }
    if context.offers(Capability::Bytes) {
        next.fill(2, other)?;
    }
    device.release(late);
    if context.offers(Capability::Bytes) {
        holds(&copy, 1, late, "memory was reused before the late copy had read it")?;
        holds(&next, 2, other, "the next buffer keeps its bytes")?;
    }
    // Once the copy is done, there is room for another buffer.
    let last = device.buffer(PIECE, other)?;
    let (from, to) = range(&last);
    assert!(to <= start || end <= from);
    device.check_consistency();
    Ok(())
}

fn empty_cache_returns_all(context: &Context) -> Outcome {
    let device = tight(context)?;
    for _ in 0..2 {
        let Stage { kept, .. } = Stage::set(context, device)?;
        let long = filled(context, device, LONG, 9)?;
        let user = device.side_stream()?;
        device.hold(user);
        let small = [device.alloc(512)?, device.alloc_on(700, user)?];
        device.allocator().record_use(&small[0], user)?;
        device.free_all(small)?;
        drop(long);
        // Live buffers do not keep the memory around them from being released.
        device.allocator().empty_cache()?;
        assert!(device.reserved() < PIECES * PIECE, "{} bytes are reserved", device.reserved());
        all_hold(context, device, &kept)?;
        device.check_consistency();
        drop(kept);
        device.release(user);
        device.allocator().empty_cache()?;
        let left = (device.backend().live_allocations(), device.backend().live_reservations());
        assert_eq!((device.reserved(), left), (0, (0, 0)));
        let calls = device.all_calls();
        device.allocator().empty_cache()?;
        assert_eq!(device.all_calls(), calls, "a second call has nothing to do");
        device.check_consistency();
    }
    Ok(())
}

/// Whichever driver call fails while a buffer is assembled, other buffers keep their bytes and no memory is lost.
fn failure_while_putting_together(context: &Context) -> Outcome {
    let device = tight(context)?;
    for kind in [DriverErrorKind::Other, DriverErrorKind::OutOfMemory] {
        let mut failed = 0;
        for call in 1.. {
            let Stage { kept, .. } = Stage::set(context, device)?;
            let before = device.backend().injected();
            device.backend().fail_call(call, kind);
            let long = device.alloc(LONG);
            let was_made = device.backend().injected() > before;
            device.backend().clear_failures();
            device.check_consistency();
            all_hold(context, device, &kept)?;
            match long {
                Ok(long) => device.free(long)?,
                Err(Error::Driver { .. } | Error::OutOfMemory(_)) if was_made => failed += 1,
                Err(error) => return Err(error.into()),
            }
            // The failure leaves as much room as before.
            let again = device.alloc(LONG)?;
            assert!(address(&again) > 0);
            device.free(again)?;
            drop(kept);
            device.allocator().empty_cache()?;
            assert_eq!((device.reserved(), device.backend().live_allocations()), (0, 0), "call {call}");
            device.check_consistency();
            if !was_made {
                assert!(call > 3, "only {call} calls were made");
                break;
            }
        }
        assert!(failed > 0 || kind == DriverErrorKind::OutOfMemory, "no failure was reported");
    }
    Ok(())
}
