//! Finding, opening, describing and dropping a device.
#![allow(unsafe_code)] // a backend without a rig, since it is dropped

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use accelerator_core::{Backend, DriverErrorKind, DriverResult, EventFlags, Place, StreamKind};

use super::bytes;
use super::rig::{Rig, length};
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};

/// How long `probe` may take once it was called. It says "milliseconds"; machines have other things to do.
const QUICK: Duration = Duration::from_millis(250);

pub(super) fn probe_and_open<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`probe` returns the number of devices, quickly, and `open` refuses all other numbers");
    let count = B::probe().map_err(|why| format!("`probe` found no device, but one is open: {}", why.reason))?;
    let start = Instant::now();
    let again = B::probe().map_err(|why| format!("`probe` found {count} devices and then none: {}", why.reason))?;
    let time = start.elapsed();
    if count == 0 || again != count {
        return Err(format!("`probe` found {count} devices and then {again}, but one is open").into());
    }
    if time > QUICK {
        return Err(format!("`probe` took {time:.0?} when it was called again: it is called often").into());
    }
    for number in [count, count + 1, u32::MAX] {
        match B::open(number) {
            Err(error) if error.kind == DriverErrorKind::InvalidArgument => {}
            Err(error) => {
                return Err(
                    format!("`open({number})` of {count} devices did not answer `InvalidArgument`: {error:?}").into()
                );
            }
            Ok(_) => return Err(format!("`open({number})` opened a device, though `probe` found {count}").into()),
        }
    }
    match B::open(count - 1) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("`probe` found {count} devices, but `open({})` failed: {error}", count - 1).into()),
    }
}

pub(super) fn properties_are_constant<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`properties` describes the device, and never changes");
    let before = rig.backend.properties().clone();
    let stream = rig.stream()?;
    let span = rig.filled(1 << 20, 1, &stream)?;
    rig.dealloc(span);
    let now = rig.backend.properties();
    if format!("{before:?}") != format!("{now:?}") {
        return Err(format!("`properties` changed from {before:?} to {now:?}").into());
    }
    let (least, greatest) = now.stream_priorities;
    let wrong = [
        (now.name.is_empty(), "an empty `name`".to_owned()),
        (now.total_memory == 0, "a `total_memory` of 0".to_owned()),
        (now.largest_allocation == 0, "a `largest_allocation` of 0".to_owned()),
        (!now.alignment.is_power_of_two(), format!("an `alignment` of {}, not a power of two", now.alignment)),
        (
            least < greatest,
            format!(
                "`stream_priorities` from {least} to {greatest}: the first is the least, and lower numbers run first"
            ),
        ),
    ];
    if let Some((_, what)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        return Err(format!("`properties` states {what}").into());
    }
    rig.step(&"`event` refuses an interprocess event with `Unsupported`, if there are none");
    let interprocess = EventFlags { interprocess: true, ..EventFlags::default() };
    match rig.backend.event(interprocess) {
        Err(error) if error.kind != DriverErrorKind::Unsupported => {
            Err(format!("`event` did not answer `Unsupported` for an interprocess event: {error:?}").into())
        }
        _ => Ok(()),
    }
}

pub(super) fn event_ids_differ<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`event_id` distinguishes live events, or is 0 for all of them");
    let stream = rig.stream()?;
    let events = (0..64).map(|_| rig.recorded(&stream)).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<u64> = events.iter().map(|event| rig.backend.event_id(event)).collect();
    let different: BTreeSet<_> = ids.iter().collect();
    match different.len() == ids.len() || ids.iter().all(|id| *id == 0) {
        true => Ok(()),
        false => Err(format!("`event_id` has {} values for {} live events", different.len(), ids.len()).into()),
    }
}

pub(super) fn backend_dropped_under_work<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"when the backend is dropped, its work is done or never runs, and its memory goes back after that");
    let scale = rig.scale()?;
    let (len, own) = (length(scale.len), rig.stream()?);
    let mut asked = false;
    for streams_first in [true, false] {
        let fail = |call: Call, error| Failure::from(format!("`{}` of a second instance failed: {error}", call.name()));
        let backend = B::open(0).map_err(|error| format!("`open` failed for a second instance: {error}"))?;
        let make = || backend.stream(StreamKind::Side { priority: 0 });
        let (stream, other) = (make().map_err(|e| fail(Call::Stream, e))?, make().map_err(|e| fail(Call::Stream, e))?);
        let memory = backend.alloc(len).map_err(|error| fail(Call::Alloc, error))?;
        let target = rig.pinned(scale.len, 0)?;
        let Place::Host(to) = target.place else { unreachable!("host memory") };
        let event = backend.event(EventFlags::default()).map_err(|error| fail(Call::Event, error))?;
        submit_to(&backend, memory, to, len, &stream).map_err(|error| fail(Call::Fill, error))?;
        backend.record(&event, &stream).map_err(|error| fail(Call::Record, error))?;
        backend.wait(&other, &event).map_err(|error| fail(Call::Wait, error))?;
        asked |= !backend.is_complete(&event).map_err(|error| fail(Call::IsComplete, error))?;
        if streams_first {
            drop((event, stream, other));
            drop(backend);
        } else {
            drop(backend);
            drop((event, stream, other));
        }
        // Work that still ran would go on writing.
        let seen = target.bytes().to_vec();
        use_device(rig, &own, scale.time / 2)?;
        bytes::equal(target.bytes(), &seen).map_err(|_| -> Failure {
            "work went on after its backend had been dropped: dropping it must wait for the work, or cancel it".into()
        })?;
    }
    match asked {
        true => Ok(()),
        false => Err(Failure::NotAsked("could not ask: the work was done before the backend was dropped".into())),
    }
}

/// Uses the device for this long and several times, because some drivers do work only while they are called.
fn use_device<B: Backend>(rig: &Rig<B>, stream: &B::Stream, time: Duration) -> Outcome {
    const TIMES: u32 = 32;
    let (start, memory) = (Instant::now(), rig.alloc(4096)?);
    let mut times = 0;
    while times < TIMES || start.elapsed() < time {
        rig.fill(memory, 1, stream)?;
        rig.synchronize(stream)?;
        times += 1;
    }
    rig.dealloc(memory);
    Ok(())
}

/// Submits fills of device memory and copies to the host, one after the other, and then more fills: copies to another
/// instance's memory may wait until they are done, but fills do not.
fn submit_to<B: Backend>(
    backend: &B,
    memory: B::Ptr,
    to: NonNull<u8>,
    len: NonZeroU64,
    stream: &B::Stream,
) -> DriverResult<()> {
    for value in 1..=32 {
        // SAFETY: The memory has this length and is live until the backend is dropped.
        unsafe { backend.fill(memory, value, len, stream) }?;
        if value <= 16 {
            // SAFETY: As for the fill. The rig keeps the host memory, which is read only after the backend was dropped.
            unsafe { backend.copy(Place::Host(to), Place::Device(memory), len, stream) }?;
        }
    }
    Ok(())
}
