//! Device and host memory: where it is, how much there is, and when it goes back.

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, DriverResult, MIB, MemoryInfoSource};

use super::bytes;
use super::live::LiveRanges;
use super::rig::{Rig, Span, length};
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};

pub(super) fn allocations_are_apart_and_aligned<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`alloc` returns memory with the stated alignment that overlaps no other live allocation");
    let stream = rig.stream()?;
    let alignment = rig.backend.properties().alignment;
    let sizes = [1, 2, 511, 512, 513, 4095, 4096, 65_537, 1 << 20, (2 << 20) + 1];
    let mut live = Vec::new();
    let mut ranges = LiveRanges::default();
    for round in 0..6 {
        for size in sizes {
            let span = rig.alloc(size)?;
            let ptr = span.device();
            let address = ptr.trace_address();
            if !address.is_multiple_of(alignment) {
                return Err(format!(
                    "`alloc` of {size} bytes returned the address {address:#x}, which is not a multiple of the \
                     {alignment} bytes that `properties` states"
                )
                .into());
            }
            ranges.add(Call::Alloc, ptr, size)?;
            live.push((span, ptr));
        }
        // Each has its own value; the value of none may change by a fill of another.
        for (number, (span, _)) in live.iter().enumerate() {
            rig.fill(*span, number as u8 ^ round, &stream)?;
        }
        for (number, (span, _)) in live.iter().enumerate() {
            let size = span.len;
            let sentence = format!("`alloc` of {size} bytes shares bytes with another live allocation");
            rig.holds(*span, number as u8 ^ round, &stream, &sentence)?;
        }
        for place in (0..live.len()).rev().step_by(3) {
            let (span, ptr) = live.swap_remove(place);
            ranges.remove(ptr);
            rig.dealloc(span);
        }
    }
    Ok(())
}

/// A backend that hands out more than this many times its total memory does not say when it is full.
const BEYOND: u64 = 2;

pub(super) fn memory_runs_out<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`alloc` answers `OutOfMemory` when the device has no room, and the device stays usable");
    let stream = rig.stream()?;
    let properties = rig.backend.properties();
    let total = properties.total_memory;
    let mut len = (total / 8).min(properties.largest_allocation).max(MIB);
    let (mut taken, mut all) = (0, Vec::new());
    let refused = loop {
        match rig.try_alloc(len) {
            Ok(span) => {
                taken += len;
                all.push(span);
            }
            Err(error) if len > MIB && error.kind == DriverErrorKind::OutOfMemory => len = (len / 4).max(MIB),
            Err(error) => break Some(error),
        }
        if taken / BEYOND > total || all.len() > 20_000 {
            break None;
        }
    };
    let usable = match refused {
        Some(error) if error.kind != DriverErrorKind::OutOfMemory => {
            return Err(format!("`alloc` did not answer `OutOfMemory` with {taken} bytes taken, but {error:?}").into());
        }
        // What is live can be used while there is no room for more.
        Some(_) => all.last().map_or(Ok(()), |last| used(rig, last.part(0, last.len.min(MIB)), &stream)),
        None => Ok(()),
    };
    all.into_iter().for_each(|span| rig.dealloc(span));
    usable?;
    used(rig, rig.alloc(MIB)?, &stream)?;
    match refused {
        Some(_) => Ok(()),
        None => Err(Failure::NotAsked(format!(
            "could not ask: the driver handed out {taken} bytes of the {total} that the device has"
        ))),
    }
}

fn used<B: Backend>(rig: &Rig<B>, span: Span<B::Ptr>, stream: &B::Stream) -> Outcome {
    rig.fill(span, 1, stream)?;
    rig.holds(span, 1, stream, "`alloc` answered `OutOfMemory`, and then memory did not hold what was written to it")
}

pub(super) fn too_large_is_told<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(
        &"`alloc` answers `AllocationTooLarge` for more than `largest_allocation`, and `OutOfMemory` for what else has no \
          room",
    );
    let properties = rig.backend.properties();
    let (largest, total) = (properties.largest_allocation, properties.total_memory);
    if largest < u64::MAX {
        match rig.try_alloc(largest) {
            Ok(span) => rig.dealloc(span),
            Err(error) if error.kind == DriverErrorKind::OutOfMemory => {}
            Err(error) => {
                return Err(format!(
                    "`alloc` of {largest} bytes, the `largest_allocation` that `properties` states, answered {error:?}"
                )
                .into());
            }
        }
    }
    for len in [largest.saturating_add(1), total.saturating_mul(2), u64::MAX / 2, u64::MAX - 4095, u64::MAX] {
        if len <= largest && len <= total {
            continue;
        }
        let error = match rig.try_alloc(len) {
            Err(error) => error,
            Ok(span) if len > largest => {
                return Err(format!(
                    "`alloc` returned {} bytes, but `properties` says that at most {largest} are given at once",
                    span.len
                )
                .into());
            }
            Ok(span) => {
                rig.dealloc(span);
                continue; // the driver does not say when it is full
            }
        };
        let expected = match len > largest {
            true => DriverErrorKind::AllocationTooLarge,
            false => DriverErrorKind::OutOfMemory,
        };
        if error.kind != expected {
            return Err(format!(
                "`alloc` of {len} bytes did not answer `{expected:?}`, though the largest allocation has {largest} \
                 bytes and the device {total}: {error:?}"
            )
            .into());
        }
    }
    let stream = rig.stream()?;
    used(rig, rig.alloc(MIB)?, &stream)
}

/// Other processes may take memory meanwhile: one of several attempts must agree.
const ROUNDS: u32 = 4;

pub(super) fn memory_info_follows<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`memory_info` says how many bytes are free now");
    let ask = || rig.call(Call::MemoryInfo, || rig.backend.memory_info());
    let (first, properties) = (ask()?, rig.backend.properties());
    let is_total = |bytes: u64| bytes >= properties.total_memory / 2 && bytes / 2 <= properties.total_memory;
    if !is_total(first.total) || first.free > first.total {
        return Err(format!(
            "`memory_info` says {} of {} bytes are free, and `properties` that the device has {}",
            first.free, first.total, properties.total_memory
        )
        .into());
    }
    let len = (first.free / 4).min(properties.largest_allocation).clamp(MIB, 256 * MIB);
    // A driver takes memory in pages of its own.
    let slack = match first.source {
        MemoryInfoSource::Accounting => MIB,
        _ => len / 2,
    };
    let mut wrong = String::new();
    for _ in 0..ROUNDS {
        let before = ask()?;
        let span = rig.alloc(len)?;
        let during = ask()?;
        rig.dealloc(span);
        let after = ask()?;
        let (taken, returned) = (before.free.saturating_sub(during.free), after.free.saturating_sub(during.free));
        if taken.abs_diff(len) <= slack && returned.abs_diff(len) <= slack && during.total == first.total {
            return Ok(());
        }
        wrong = format!(
            "`memory_info` says that {} bytes were free, {} after `alloc` of {len}, and {} after its `dealloc`",
            before.free, during.free, after.free
        );
    }
    Err(wrong.into())
}

pub(super) fn dealloc_gives_back<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`dealloc` gives memory back to the device");
    let properties = rig.backend.properties();
    let len = (properties.total_memory / 4).min(properties.largest_allocation).max(MIB);
    let rounds = properties.total_memory / len * 2;
    goes_back(["alloc", "dealloc"], len, rounds.min(256), || rig.try_alloc(len).map(|span| rig.dealloc(span)))
}

/// Takes `len` bytes and gives them back, as often as `rounds` says: together more than there are. `names` are the two
/// methods.
pub(super) fn goes_back(
    [take, give_back]: [&str; 2],
    len: u64,
    rounds: u64,
    mut take_and_give_back: impl FnMut() -> DriverResult<()>,
) -> Outcome {
    for round in 0..rounds {
        let Err(error) = take_and_give_back() else { continue };
        return Err(match round {
            0 => Failure::NotAsked(format!("could not ask: there is no room for {len} bytes: {error}")),
            _ => Failure::Failed(format!(
                "`{give_back}` gives nothing back: after {round} times `{take}` and `{give_back}` of {len} bytes, {error}"
            )),
        });
    }
    Ok(())
}

pub(super) fn dealloc_waits_for_work<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`dealloc` gives memory back only when the work submitted before is done");
    let (worker, other) = (rig.worker()?, rig.stream()?);
    let len = rig.scale()?.len;
    let copy = rig.pinned(len, 0)?;
    rig.asked("the work was done before `dealloc`", |factor| {
        copy.bytes_mut().fill(0);
        let source = rig.filled(len, 1, &worker.stream)?;
        let scribbled = rig.alloc(len)?;
        rig.busy(&worker, factor)?;
        rig.copy(copy, source, &worker.stream)?;
        rig.fill(scribbled, 4, &worker.stream)?;
        let event = rig.recorded(&worker.stream)?;
        let was_open = !rig.is_complete(&event)?;
        rig.dealloc(source);
        rig.dealloc(scribbled);
        // Whoever gets the memory writes to it at once.
        let (mut next, mut failed) = (Vec::new(), None);
        for _ in 0..3 {
            match rig.alloc(len) {
                Ok(span) => next.push(span),
                Err(error) => failed = Some(error),
            }
        }
        for span in &next {
            rig.fill(*span, 2, &other)?;
        }
        rig.synchronize(&other)?;
        rig.synchronize(&worker.stream)?;
        bytes::all(copy.bytes(), 1).map_err(|difference| -> Failure {
            format!("`dealloc` gave memory back while a copy submitted before still read it: {difference}").into()
        })?;
        for span in next {
            let sentence = "`dealloc` gave memory back while a fill submitted before still wrote to it";
            rig.holds(span, 2, &other, sentence)?;
            rig.dealloc(span);
        }
        failed.map_or(Ok(was_open), Err)
    })
}

pub(super) fn host_memory<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`alloc_host` returns memory, aligned to 64 bytes, that the host and the device can use");
    let stream = rig.stream()?;
    let mut live: Vec<Span<B::Ptr>> = Vec::new();
    for (number, len) in [1, 63, 64, 4095, 4096, 4097, MIB, 4 * MIB + 1].into_iter().enumerate() {
        let span = rig.pinned(len, number as u8 + 1)?;
        let address = span.bytes().as_ptr().addr();
        if !address.is_multiple_of(64) {
            return Err(format!("`alloc_host` of {len} bytes returned {address:#x}, not a multiple of 64").into());
        }
        live.push(span);
    }
    for (number, span) in live.iter().enumerate() {
        let value = number as u8 + 1;
        let shared = "`alloc_host` returned memory that overlaps other memory of `alloc_host`";
        bytes::all(span.bytes(), value).map_err(|difference| format!("{shared}: {difference}"))?;
        let device = rig.alloc(span.len)?;
        rig.copy(device, *span, &stream)?;
        rig.holds(device, value, &stream, "`copy` from memory of `alloc_host`")?;
        rig.fill(device, value ^ 0xFF, &stream)?;
        rig.copy(*span, device, &stream)?;
        rig.synchronize(&stream)?;
        let after = bytes::all(span.bytes(), value ^ 0xFF);
        after.map_err(|difference| format!("`copy` to memory of `alloc_host`: {difference}"))?;
    }
    rig.step(&"`dealloc_host` gives back the memory it is given, and no other");
    let mut live: Vec<_> = live.into_iter().zip(1u8..).collect();
    while live.len() > 1 {
        rig.dealloc_host(live.remove(live.len() / 2).0);
        for (span, value) in &live {
            bytes::all(span.bytes(), value ^ 0xFF)
                .map_err(|difference| format!("`dealloc_host` changed other memory of `alloc_host`: {difference}"))?;
        }
    }
    rig.step(&"`alloc_host` answers `OutOfMemory` when there is no room");
    for len in [1 << 60, u64::MAX - 4095, u64::MAX] {
        let answer = rig.ask(Call::AllocHost, || rig.backend.alloc_host(length(len)));
        match answer.map_err(|error| error.kind) {
            Err(DriverErrorKind::OutOfMemory | DriverErrorKind::AllocationTooLarge) => {}
            other => {
                return Err(format!("`alloc_host` of {len} bytes did not answer `OutOfMemory`, but {other:?}").into());
            }
        }
    }
    let span = rig.pinned(4096, 5)?;
    bytes::all(span.bytes(), 5).map_err(|difference| format!("`alloc_host` after a refusal: {difference}").into())
}
