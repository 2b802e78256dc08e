//! Fills and copies: every length, every offset, and in the order of the stream.

use accelerator_core::{Backend, MIB, Place};

use super::bytes;
use super::rig::{Rig, Span};
use super::waits::{returns_at_once, timed};
use crate::outcome::{Failure, Outcome};

/// Small lengths: all of them up to twice a 16-byte word, and those around larger powers of two.
const LENGTHS: [u64; 43] = {
    let mut lengths = [0; 43];
    let mut place = 0;
    while place < 33 {
        lengths[place] = place as u64 + 1;
        place += 1;
    }
    let more = [63, 64, 65, 127, 128, 129, 255, 256, 257, 1021];
    while place < 43 {
        lengths[place] = more[place - 33];
        place += 1;
    }
    lengths
};

/// The distance of the places where lengths are tried: more than the largest length and offset.
const PLACE: u64 = 1536;

pub(super) fn fills_of_every_length_and_offset<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`fill` writes its value to each of its bytes, and to no others");
    let stream = rig.stream()?;
    let offsets = 0..=16;
    let len = PLACE * LENGTHS.len() as u64 * offsets.clone().count() as u64;
    let (memory, mut model) = (rig.filled(len, 0xA5, &stream)?, vec![0xA5; len as usize]);
    for (place, (offset, len)) in offsets.flat_map(|offset| LENGTHS.map(|len| (offset, len))).enumerate() {
        let (start, value) = (place as u64 * PLACE + 64 + offset, place as u8 | 1);
        rig.fill(memory.part(start, len), value, &stream)?;
        model[start as usize..][..len as usize].fill(value);
    }
    compare(rig, memory, &model, &stream, |place| {
        let number = place / PLACE;
        let (offset, len) = (number / LENGTHS.len() as u64, LENGTHS[number as usize % LENGTHS.len()]);
        format!("`fill` of {len} bytes at offset {offset}")
    })
}

/// Compares device memory with a model. `what` says what was done at the first byte that differs.
fn compare<B: Backend>(
    rig: &Rig<B>,
    memory: Span<B::Ptr>,
    model: &[u8],
    stream: &B::Stream,
    what: impl Fn(u64) -> String,
) -> Outcome {
    let copy = rig.pageable(memory.len, 0x5A);
    rig.copy(copy, memory, stream)?;
    rig.synchronize(stream)?;
    let compared = bytes::equal(copy.bytes(), model);
    compared.map_err(|difference| format!("{}: {difference}", what(difference.first() as u64)).into())
}

pub(super) fn copies_of_every_length_and_offset<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`copy` writes the bytes of its source to its destination, and changes no others");
    let stream = rig.stream()?;
    let pattern = bytes::pattern(4096, 0x11);
    let (near, far) = (rig.alloc(4096)?, rig.pageable(4096, 0));
    let pinned = rig.pinned(4096, 0)?;
    for host in [far, pinned] {
        host.bytes_mut().copy_from_slice(&pattern);
    }
    rig.copy(near, far, &stream)?;
    rig.synchronize(&stream)?;
    // Every offset of either end, some with an equal one and some with another one at the other end.
    let equal = (0..=16).map(|offset| (offset, offset));
    let offsets: Vec<(u64, u64)> = equal.chain((0..=16).map(|offset| (offset, (offset * 5 + 1) % 17))).collect();
    let len = PLACE * (LENGTHS.len() * offsets.len()) as u64;
    let sources = [("device memory", near), ("pinned memory", pinned), ("pageable memory", far)];
    let (target, pinned_target) = (rig.alloc(len)?, rig.pinned(len, 0)?);
    let targets = [("device", target), ("pinned", pinned_target), ("pageable", rig.pageable(len, 0))];
    for (from, source) in sources {
        for (to, target) in targets {
            let is_host = !matches!(target.place, Place::Device(_));
            let mut model = vec![0xA5; len as usize];
            clear(rig, target, &stream)?;
            for (place, ((skip, offset), len)) in
                offsets.iter().flat_map(|offset| LENGTHS.map(|len| (*offset, len))).enumerate()
            {
                let (from, to) = (64 + skip, place as u64 * PLACE + 64 + offset);
                rig.copy(target.part(to, len), source.part(from, len), &stream)?;
                model[to as usize..][..len as usize].copy_from_slice(&pattern[from as usize..][..len as usize]);
            }
            let told = |place: u64| {
                let number = (place / PLACE) as usize;
                let ((skip, offset), len) = (offsets[number / LENGTHS.len()], LENGTHS[number % LENGTHS.len()]);
                format!("`copy` of {len} bytes from {from} at offset {skip} to {to} memory at offset {offset}")
            };
            if is_host {
                rig.synchronize(&stream)?;
                let compared = bytes::equal(target.bytes(), &model);
                compared.map_err(|difference| format!("{}: {difference}", told(difference.first() as u64)))?;
            } else {
                compare(rig, target, &model, &stream, told)?;
            }
        }
    }
    Ok(())
}

/// Sets all bytes to what the models begin with.
fn clear<B: Backend>(rig: &Rig<B>, span: Span<B::Ptr>, stream: &B::Stream) -> Outcome {
    match span.place {
        Place::Device(_) => rig.fill(span, 0xA5, stream)?,
        _ => span.bytes_mut().fill(0xA5),
    }
    rig.synchronize(stream)
}

pub(super) fn large_copies<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(
        &"`copy` writes all bytes of a large source to its destination, in their order, and `fill` all of its bytes",
    );
    let (stream, properties) = (rig.stream()?, rig.backend.properties());
    let len = (33 * MIB + 1).min(properties.total_memory / 16).min(properties.largest_allocation);
    let pattern = bytes::pattern(len as usize, 0x33);
    let (source, target) = (rig.pinned(len, 0)?, rig.pageable(len, 0));
    source.bytes_mut().copy_from_slice(&pattern);
    let (one, other) = (rig.alloc(len)?, rig.alloc(len)?);
    rig.copy(one, source, &stream)?;
    // The last byte is left out, so that both ends are odd.
    rig.fill(other.part(len - 1, 1), pattern[len as usize - 1], &stream)?;
    rig.copy(other.part(0, len - 1), one.part(0, len - 1), &stream)?;
    rig.copy(target, other, &stream)?;
    rig.synchronize(&stream)?;
    let many = bytes::grouped(len as usize);
    bytes::equal(target.bytes(), &pattern).map_err(|difference| format!("`copy` of {many} bytes: {difference}"))?;
    rig.fill(other, 0x77, &stream)?;
    rig.holds(other, 0x77, &stream, &format!("`fill` of {many} bytes"))
}

/// Earlier work of the stream still writes what a copy reads.
pub(super) fn copies_read_in_stream_order<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`copy` reads its source in the order of the stream: earlier work may still write it");
    read_late(rig, &[("pinned", rig.pinned(LATE, 0)?), ("device", rig.filled(LATE, 0, &*rig.stream()?)?)])
}

pub(super) fn pageable_copies_read_in_stream_order<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`copy` reads pageable memory in the order of the stream, too: earlier work may still write it");
    read_late(rig, &[("pageable", rig.pageable(LATE, 0))])
}

const LATE: u64 = 1 << 20;

fn read_late<B: Backend>(rig: &Rig<B>, between: &[(&str, Span<B::Ptr>)]) -> Outcome {
    let worker = rig.worker()?;
    let stream = &worker.stream;
    let (ones, end, read) = (rig.filled(LATE, 1, stream)?, rig.filled(LATE, 2, stream)?, rig.pinned(LATE, 0)?);
    for (name, between) in between {
        // Copies that involve pageable memory may wait for the work, so there is nothing to ask about.
        rig.busy(&worker, 1)?;
        rig.copy(*between, ones, stream)?;
        rig.copy(end, *between, stream)?;
        rig.copy(read, end, stream)?;
        rig.synchronize(stream)?;
        bytes::all(read.bytes(), 1).map_err(|difference| -> Failure {
            format!("`copy` read {name} memory before the work submitted earlier had written it: {difference}").into()
        })?;
        // The same with host memory as the last destination of earlier work, and a fill in between.
        rig.busy(&worker, 1)?;
        rig.fill(ones, 3, stream)?;
        rig.copy(*between, ones, stream)?;
        rig.fill(ones, 1, stream)?;
        rig.copy(end, *between, stream)?;
        rig.copy(*between, ones, stream)?;
        rig.copy(read, end, stream)?;
        rig.synchronize(stream)?;
        bytes::all(read.bytes(), 3).map_err(|difference| -> Failure {
            format!("`copy` and `fill` on one stream did not run in the order of submission: {difference}").into()
        })?;
    }
    Ok(())
}

pub(super) fn copies_do_not_block<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`fill`, and `copy` between device memory and memory of `alloc_host`, return while earlier work runs");
    let worker = rig.worker()?;
    let stream = &worker.stream;
    let (one, other, pinned) = (rig.alloc(LATE)?, rig.alloc(LATE)?, rig.pinned(LATE, 0)?);
    let calls: [(&str, &dyn Fn() -> Outcome); 4] = [
        ("`fill`", &|| rig.fill(one, 1, stream)),
        ("`copy` within the device", &|| rig.copy(other, one, stream)),
        ("`copy` to pinned memory", &|| rig.copy(pinned, other, stream)),
        ("`copy` from pinned memory", &|| rig.copy(one, pinned, stream)),
    ];
    for (name, call) in calls {
        returns_at_once(rig, &worker, || Ok((name, timed(call)?)))?;
    }
    Ok(())
}
