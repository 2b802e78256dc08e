//! Data copied to the device, on the device, and back.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, KIB, MIB, Place, StreamKind};
use accelerator_vulkan::{Vulkan, VulkanStream};
use fastrand::Rng;
use libtest_mimic::Trial;

use crate::rig::{Outcome, bytes, check_all_gone, device, read_raw, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("bytes::copies_of_any_kind_equal_a_model", copies),
        trial("bytes::copies_in_parts", in_parts),
        trial("bytes::fills_touch_no_neighbour", fills),
        trial("bytes::overlapping_copies_are_refused", overlap),
        trial("bytes::pinned_memory", pinned),
        trial("bytes::many_uploads_without_waiting", uploads),
        trial("bytes::streams_share_the_queues", streams),
    ]
}

const LEN: u64 = 300 * KIB;

/// Memory of some kind, with its expected content.
struct Modelled {
    place: Place<<Vulkan as Backend>::Ptr>,
    bytes: Vec<u8>,
}

impl Modelled {
    /// The place `offset` bytes further on.
    fn at(&self, offset: u64) -> Place<<Vulkan as Backend>::Ptr> {
        match self.place {
            Place::Device(ptr) => Place::Device(ptr.offset(offset)),
            // SAFETY: Every caller stays within the memory.
            Place::Host(start) => Place::Host(unsafe { start.add(offset as usize) }),
            other => unreachable!("{other:?}"),
        }
    }
}

/// Random copies between device memory, pinned memory and ordinary memory, with no wait between them but those that the
/// host needs before it reads.
fn copies() -> Outcome {
    let backend = Vulkan::with_capacity(0, None)?;
    let stream = backend.stream(StreamKind::Default)?;
    let mut ordinary = vec![0_u8; LEN as usize];
    let segments = [backend.alloc(bytes(LEN))?, backend.alloc(bytes(LEN))?];
    let pinned = [backend.alloc_host(bytes(LEN))?, backend.alloc_host(bytes(LEN))?];
    let places = [
        Place::Device(segments[0]),
        Place::Device(segments[1]),
        Place::Host(pinned[0]),
        Place::Host(pinned[1]),
        Place::Host(NonNull::from(ordinary.as_mut_slice()).cast()),
    ];
    let mut random = Rng::with_seed(1);
    let mut data = vec![0; LEN as usize];
    random.fill(&mut data);
    let mut all = places.map(|place| Modelled { place, bytes: data.clone() });
    let start = Place::Host(NonNull::from(data.as_mut_slice()).cast());
    for one in &all {
        // SAFETY: Both have that many bytes, and the source stays alive until the stream is synchronized.
        unsafe { backend.copy(one.place, start, bytes(LEN), &stream) }?;
    }
    backend.synchronize(&stream)?;
    for _ in 0..3_000 {
        let bits = random.u64(..19);
        let len = 1 + random.u64(..(1 << bits).min(LEN / 2));
        let [to, from] = [0; 2].map(|_| random.usize(..all.len()));
        let [at, start] = [0; 2].map(|_| random.u64(..LEN - len + 1));
        if to == from && at.abs_diff(start) < len {
            continue;
        }
        // SAFETY: Both ranges are inside their memory and do not overlap. The host touches none of them meanwhile.
        unsafe { backend.copy(all[to].at(at), all[from].at(start), bytes(len), &stream) }?;
        let copied = all[from].bytes[start as usize..][..len as usize].to_vec();
        all[to].bytes[at as usize..][..len as usize].copy_from_slice(&copied);
    }
    backend.synchronize(&stream)?;
    for (number, Modelled { place, bytes: expected }) in all.iter().enumerate() {
        let found = match *place {
            Place::Device(ptr) => read_raw(&backend, ptr, LEN, &stream)?,
            // SAFETY: The stream is synchronized, so only the host uses the memory.
            Place::Host(start) => unsafe { std::slice::from_raw_parts(start.as_ptr(), LEN as usize) }.to_vec(),
            other => unreachable!("{other:?}"),
        };
        let difference = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(difference, None, "of place {number}");
    }
    for ptr in segments {
        // SAFETY: It was allocated with this length.
        unsafe { backend.dealloc(ptr, bytes(LEN)) };
    }
    for ptr in pinned {
        // SAFETY: As above, and the work is done.
        unsafe { backend.dealloc_host(ptr, bytes(LEN)) };
    }
    Ok(())
}

/// Ordinary memory goes through blocks of a few MiB.
fn in_parts() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    for len in [4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 13 * MIB + 5] {
        let mut data = vec![0; len as usize];
        Rng::with_seed(len).fill(&mut data);
        let mut buffer = device.allocate(len, stream)?;
        buffer.write(0, &data, stream)?;
        assert!(buffer.slice::<u8>()?.to_vec(stream)? == data, "{len} bytes");
    }
    check_all_gone(device)
}

fn fills() -> Outcome {
    const AROUND: u64 = 40;
    let backend = Vulkan::with_capacity(0, None)?;
    let stream = backend.stream(StreamKind::Default)?;
    let start = backend.alloc(bytes(AROUND))?;
    for offset in 0..8 {
        for len in 1..=(AROUND - 8) {
            let value = (offset * 32 + len) as u8;
            // SAFETY: The memory has that many bytes.
            unsafe { backend.fill(start, !value, bytes(AROUND), &stream) }?;
            // SAFETY: As above.
            unsafe { backend.fill(start.offset(offset), value, bytes(len), &stream) }?;
            let mut expected = [!value; AROUND as usize];
            expected[offset as usize..][..len as usize].fill(value);
            assert_eq!(read_raw(&backend, start, AROUND, &stream)?, expected, "{len} bytes at {offset}");
        }
    }
    // SAFETY: It was allocated with this length.
    unsafe { backend.dealloc(start, bytes(AROUND)) };
    Ok(())
}

fn overlap() -> Outcome {
    let backend = Vulkan::with_capacity(0, None)?;
    let stream = backend.stream(StreamKind::Default)?;
    let at = backend.alloc(bytes(100))?;
    for (to, from, len) in [(0, 0, 1), (1, 0, 2), (10, 59, 50)] {
        let (to, from) = (Place::Device(at.offset(to)), Place::Device(at.offset(from)));
        // SAFETY: Both are in the memory. They overlap on purpose, which the backend detects.
        let error = unsafe { backend.copy(to, from, bytes(len), &stream) }.unwrap_err();
        assert_eq!((error.kind, error.call), (DriverErrorKind::InvalidArgument, "vkCmdCopyBuffer"));
    }
    let (to, from) = (Place::Device(at.offset(10)), Place::Device(at.offset(60)));
    // SAFETY: Both are in the memory, and only touch.
    unsafe { backend.copy(to, from, bytes(40), &stream) }?;
    Ok(())
}

fn pinned() -> Outcome {
    let backend = Vulkan::with_capacity(0, None)?;
    let stream = backend.stream(StreamKind::Default)?;
    for len in [1, 63, 4_096, 5 * MIB + 3].map(bytes) {
        for round in 0..2 {
            let start = backend.alloc_host(len)?;
            // SAFETY: Only this function has the memory.
            let memory = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len.get() as usize) };
            assert!(memory.iter().all(|byte| *byte == 0), "{len} bytes, round {round}");
            assert!(start.addr().get().is_multiple_of(64));
            memory.fill(7);
            assert!(backend.pinned_native(start, len.get()).is_some_and(|(_, offset)| offset == 0));
            assert!(backend.pinned_native(start, len.get() + 1).is_none());
            // SAFETY: It was allocated with this length, and no work uses it.
            unsafe { backend.dealloc_host(start, len) };
            assert!(backend.pinned_native(start, 1).is_none());
        }
    }
    backend.synchronize(&stream)?;
    Ok(())
}

/// Ordinary memory may change as soon as the copy returns, since the next write waits for nothing.
fn uploads() -> Outcome {
    const COUNT: u64 = 3_000;
    const EACH: u64 = 60 * KIB;
    let backend = Vulkan::with_capacity(0, None)?;
    let stream = backend.stream(StreamKind::Default)?;
    let start = backend.alloc(bytes(EACH))?;
    let mut data = vec![0_u64; EACH as usize / 8];
    for number in 0..COUNT {
        data.fill(number);
        let from = Place::Host(NonNull::from(data.as_mut_slice()).cast());
        // SAFETY: Both have that many bytes. The backend documents that it reads ordinary memory at once.
        unsafe { backend.copy(Place::Device(start), from, bytes(EACH), &stream) }?;
    }
    assert!(read_raw(&backend, start, EACH, &stream)? == (COUNT - 1).to_ne_bytes().repeat(EACH as usize / 8));
    Ok(())
}

/// With more streams than queues, streams that wait for each other in a circle of submissions still make progress.
fn streams() -> Outcome {
    const COUNT: usize = 40;
    let device = device()?;
    let backend = device.backend();
    let streams: Vec<VulkanStream> =
        (0..COUNT).map(|_| backend.stream(StreamKind::Side { priority: 0 })).collect::<Result<_, _>>()?;
    let events = (0..COUNT).map(|_| backend.event(Default::default())).collect::<Result<Vec<_>, _>>()?;
    let start = backend.alloc(bytes(COUNT as u64))?;
    for round in 0..5_u8 {
        for (number, stream) in streams.iter().enumerate() {
            let before = (number + COUNT - 1) % COUNT;
            backend.wait(stream, &events[before])?;
            if number > 0 {
                let (from, to) = (start.offset(number as u64 - 1), start.offset(number as u64));
                // SAFETY: Both are in the memory, and the streams are ordered.
                unsafe { backend.copy(Place::Device(to), Place::Device(from), bytes(1), stream) }?;
            } else {
                // SAFETY: As above.
                unsafe { backend.fill(start, round, bytes(1), stream) }?;
            }
            backend.record(&events[number], stream)?;
        }
    }
    backend.wait_host(&events[COUNT - 1])?;
    assert_eq!(read_raw(backend, start, COUNT as u64, &streams[0])?, [4; COUNT]);
    drop(streams);
    // SAFETY: It was allocated with this length.
    unsafe { backend.dealloc(start, bytes(COUNT as u64)) };
    check_all_gone(device)
}
