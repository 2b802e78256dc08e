//! Data copied to the device, on the device, and back.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ptr::NonNull;

use accelerator_core::{
    Accelerator, Backend, Buffer, DevicePtr, DriverError, DriverErrorKind, KIB, MIB, Place, Stream,
};
use accelerator_opencl::{OpenCl, OpenClPtr};
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

use crate::rig::{Outcome, bytes, check_all_gone, device, free, read_raw, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("bytes::ten_thousand_random_buffers", random_buffers),
        trial("bytes::copies_between_buffers", copies_between_buffers),
        trial("bytes::raw_copies_equal_a_model", raw_copies),
        trial("bytes::overlapping_copies_are_refused", overlap),
        trial("bytes::pinned_memory", pinned),
        trial("bytes::pinned_memory_is_zero", pinned_memory_is_zero),
    ]
}

/// A buffer filled with its number.
struct Numbered {
    number: u64,
    buffer: Buffer<OpenCl>,
}

impl Numbered {
    fn new(
        number: u64,
        len: u64,
        device: &'static Accelerator<OpenCl>,
        stream: Stream<OpenCl>,
    ) -> Result<Self, Failed> {
        let mut own = Self { number, buffer: device.allocate(len, stream)? };
        match own.is_filled() {
            true => own.buffer.fill(own.byte(), stream)?,
            false => own.buffer.write(0, &own.expected(), stream)?,
        }
        Ok(own)
    }

    fn is_filled(&self) -> bool {
        self.number.is_multiple_of(2)
    }

    /// A different byte for each of 251 consecutive buffers.
    fn byte(&self) -> u8 {
        (self.number % 251) as u8
    }

    fn expected(&self) -> Vec<u8> {
        let len = self.buffer.len() as usize;
        if self.is_filled() {
            return vec![self.byte(); len];
        }
        let mut expected = self.number.to_le_bytes().repeat(len.div_ceil(8));
        expected.truncate(len);
        expected
    }

    /// Reads and checks the whole buffer on this stream.
    fn check(&self, stream: Stream<OpenCl>) -> Outcome {
        let mut found = vec![!self.byte(); self.buffer.len() as usize];
        self.buffer.read(0, &mut found, stream)?;
        let expected = self.expected();
        match found == expected {
            true => Ok(()),
            false => {
                let place = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                let (number, buffer) = (self.number, &self.buffer);
                Err(format!("byte {place:?} of buffer {number} belongs to another: {buffer:?}").into())
            }
        }
    }
}

fn random_buffers() -> Outcome {
    let device = device()?;
    let mut streams = vec![device.default_stream()];
    for _ in 0..3 {
        streams.push(device.stream(0)?);
    }
    let mut random = Rng::with_seed(1);
    let mut live = VecDeque::new();
    for number in 0..10_000 {
        let bound = match random.u64(..100) {
            0 => MIB,
            1..10 => 64 * KIB,
            _ => 4 * KIB,
        };
        let stream = streams[random.usize(..4)];
        live.push_back(Numbered::new(number, 1 + random.u64(..bound), device, stream)?);
        while live.len() as u64 > 1 + random.u64(..200) {
            let freed: Numbered = live.swap_remove_back(random.usize(..live.len())).unwrap();
            let (own, reader) = (freed.buffer.stream(), streams[random.usize(..4)]);
            if reader != own {
                reader.wait_stream(own)?;
            }
            freed.check(reader)?;
        }
        if random.u64(..1_000) == 0 {
            device.allocator().empty_cache()?;
        }
    }
    assert!(device.allocator().statistics().allocation.all.peak > 50, "many buffers are live at once");
    for left in live {
        left.check(left.buffer.stream())?;
    }
    assert_eq!(device.allocator().statistics().allocation.all.allocated, 10_000);
    check_all_gone(device)
}

fn copies_between_buffers() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    // In a shared segment, in a separate one, and empty.
    for len in [0, 1, 3, 4_097, MIB + 1, 11 * MIB] {
        let mut data = vec![0; len as usize];
        Rng::with_seed(len).fill(&mut data);
        let mut from = device.allocate(len, stream)?;
        let mut to = device.allocate(len + 1, stream)?;
        from.write(0, &data, stream)?;
        to.fill(0xEE, stream)?;
        to.copy_from(&from, stream)?;
        let mut found = vec![0; data.len() + 1];
        to.read(0, &mut found, stream)?;
        assert!(found.split_last() == Some((&0xEE, &data)), "{len} bytes, and the next byte is unchanged");
    }
    check_all_gone(device)
}

/// A block of a segment with its expected content.
struct Modelled {
    at: OpenClPtr,
    bytes: Vec<u8>,
}

fn raw_copies() -> Outcome {
    const LEN: u64 = 40_000;
    let device = device()?;
    let (backend, stream) = (device.backend(), device.default_stream());
    // Three share a segment; the fourth has another.
    let buffers = [LEN, LEN, LEN, 3 * MIB].map(|len| device.allocate(len, stream).unwrap());
    let places = buffers.each_ref().map(|buffer| buffer.ptr().unwrap());
    assert!(places[0].native().0 == places[2].native().0 && places[0].native().0 != places[3].native().0);
    let mut model = places.map(|at| Modelled { at, bytes: vec![0; LEN as usize] });
    for Modelled { at, .. } in &model {
        // SAFETY: Each has at least that many bytes.
        unsafe { backend.fill(*at, 0, bytes(LEN), stream.native()) }?;
    }
    let mut random = Rng::with_seed(2);
    let mut host = vec![0; LEN as usize];
    for _ in 0..2_000 {
        let bits = random.u64(..15);
        let len = 1 + random.u64(..1 << bits);
        let [to, from] = [0; 2].map(|_| random.usize(..4));
        let [at, start] = [0; 2].map(|_| random.u64(..LEN - len + 1));
        let (device_to, device_from) = (model[to].at.offset(at), model[from].at.offset(start));
        let (written, read) = (at as usize..(at + len) as usize, start as usize..(start + len) as usize);
        let part = &mut host[..len as usize];
        let kind = random.u64(..3);
        let ends = match kind {
            0 if to == from && at.abs_diff(start) < len => continue,
            0 => {
                let copy = model[from].bytes[read.clone()].to_vec();
                model[to].bytes[written].copy_from_slice(&copy);
                (Place::Device(device_to), Place::Device(device_from))
            }
            1 => {
                random.fill(part);
                model[to].bytes[written].copy_from_slice(part);
                (Place::Device(device_to), Place::Host(NonNull::from(part).cast()))
            }
            _ => (Place::Host(NonNull::from(part).cast()), Place::Device(device_from)),
        };
        // SAFETY: Both ranges are inside their memory and do not overlap. The host does not touch its range until it
        // synchronizes.
        unsafe { backend.copy(ends.0, ends.1, bytes(len), stream.native()) }?;
        if kind > 0 {
            stream.synchronize()?;
        }
        if kind == 2 {
            assert!(host[..len as usize] == model[from].bytes[read], "{len} bytes at {start} of {from}");
        }
    }
    for (number, Modelled { at, bytes }) in model.iter().enumerate() {
        assert!(read_raw(backend, *at, LEN, stream.native())? == *bytes, "buffer {number}");
    }
    drop(buffers);
    check_all_gone(device)
}

fn overlap() -> Outcome {
    const LEN: u64 = 10_000;
    let device = device()?;
    let (backend, stream) = (device.backend(), device.default_stream());
    let mut buffer = device.allocate(LEN, stream)?;
    let before: Vec<u8> = (0..LEN).map(|n| (n % 255) as u8).collect();
    buffer.write(0, &before, stream)?;
    let at = buffer.ptr().unwrap();
    let copy = |to, from, len| {
        let ends = (Place::Device(at.offset(to)), Place::Device(at.offset(from)));
        // SAFETY: Both are in the buffer. Some overlap on purpose, which the backend detects.
        unsafe { backend.copy(ends.0, ends.1, bytes(len), stream.native()) }
    };
    for (to, from, len) in [(0, 0, 1), (0, 0, LEN), (1, 0, 2), (99, 100, 2), (0, 4_999, 5_000), (5_000, 1, 5_000)] {
        let error = copy(to, from, len).unwrap_err();
        let expected =
            DriverError::new(DriverErrorKind::InvalidArgument, "clEnqueueCopyBuffer", -8, "CL_MEM_COPY_OVERLAP");
        assert_eq!(error, expected, "{len} bytes from {from} to {to}");
        assert_eq!(error.to_string(), "clEnqueueCopyBuffer failed: CL_MEM_COPY_OVERLAP (code -8)");
    }
    assert_eq!(read_raw(backend, at, LEN, stream.native())?, before, "nothing was copied");
    // Adjacent ranges do not overlap, and neither do ranges in two buffers.
    copy(5_000, 0, 5_000)?;
    let expected = before[..5_000].repeat(2);
    assert_eq!(read_raw(backend, at, LEN, stream.native())?, expected);
    let mut large = device.allocate(3 * MIB, stream)?;
    large.copy_from(&buffer, stream)?;
    assert_eq!(read_raw(backend, large.ptr().unwrap(), LEN, stream.native())?, expected);
    Ok(())
}

fn pinned() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let before = free(device)?;
    for len in [1, 4_095, 5 * MIB + 3] {
        for _ in 0..2 {
            let mut source = device.allocate_host(len)?;
            let mut target = device.allocate_host(len)?;
            Rng::with_seed(len).fill(source.bytes_mut()?);
            target.bytes_mut()?.fill(0);
            let mut buffer = device.allocate(len, stream)?;
            buffer.copy_from_pinned(0, &source, 0..len, stream)?;
            buffer.copy_to_pinned(0..len, &mut target, 0, stream)?;
            assert!(source.bytes()? == target.bytes()?);
            let raw = read_raw(device.backend(), buffer.ptr().unwrap(), len, stream.native())?;
            assert!(raw == source.bytes()?);
            // Uses and drops the buffer on another thread.
            let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            let expected = sum(target.bytes()?);
            assert_eq!(std::thread::spawn(move || source.bytes().map(sum)).join().unwrap()?, expected);
        }
    }
    device.allocator().empty_cache()?;
    assert_eq!(free(device)?, before, "pinned memory does not count as device memory");
    device.host_allocator().empty_cache()?;
    assert_eq!(device.host_allocator().statistics().allocations.current, 0);
    Ok(())
}

/// Pinned memory from the backend is initialised, even where other memory was freed before.
fn pinned_memory_is_zero() -> Outcome {
    let device = device()?;
    let backend = device.backend();
    for len in [1, 4_095, 5 * MIB + 3] {
        for _ in 0..3 {
            let start = backend.alloc_host(bytes(len))?;
            // SAFETY: `len` bytes that only this function uses.
            let pinned = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len as usize) };
            assert!(pinned.iter().all(|byte| *byte == 0));
            pinned.fill(1);
            // SAFETY: Freed once, and no work has used it.
            unsafe { backend.dealloc_host(start, bytes(len)) };
        }
    }
    Ok(())
}
