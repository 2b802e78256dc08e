//! Address space separate from memory, with real data.
#![allow(unsafe_code)] // calls methods of `VirtualMemory`
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one proof for the steps of one mapping")]

use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, DevicePtr, DriverError, DriverErrorKind, Error, GIB, MIB, Place, StreamKind,
    VirtualMemory,
};

use super::process::Outcome;
use super::simulated::{Simulated, check_nothing_mapped, device};
use super::sleep::cycles;

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

pub(crate) fn pager<B: Backend>(device: &B) -> &dyn VirtualMemory<B::Ptr> {
    device.virtual_memory().unwrap()
}

/// Fills mapped memory with a byte.
fn fill<B: Backend>(device: &B, at: B::Ptr, value: u8, len: NonZeroU64) -> Result {
    let stream = device.stream(StreamKind::Default)?;
    // SAFETY: The program guarantees that it is mapped.
    unsafe { device.fill(at, value, len, &stream) }?;
    device.synchronize(&stream)
}

/// Reads a byte of mapped memory.
fn byte<B: Backend>(device: &B, at: B::Ptr) -> Result<u8> {
    let stream = device.stream(StreamKind::Default)?;
    let mut byte = 0;
    let to = Place::Host(NonNull::from(&mut byte));
    // SAFETY: The program guarantees that it is mapped, and waits for the byte.
    unsafe { device.copy(to, Place::Device(at), NonZeroU64::MIN, &stream) }?;
    device.synchronize(&stream)?;
    Ok(byte)
}

/// Pauses and resumes a pool a thousand times, measured by the driver's own count of free memory.
pub(crate) fn sleep<B: Simulated>() -> Outcome {
    let device = device::<B>()?;
    let free = || device.memory_info().unwrap().free;
    let all = free();
    cycles(device, 1000, || all - free())?;
    check_nothing_mapped::<B>()
}

pub(crate) fn two_addresses<B: Simulated>() -> Outcome {
    let device = &B::open(0)?;
    let memory = pager(device);
    let len = memory.granularity();
    let (one, other, pages) = (memory.reserve(len)?, memory.reserve(len)?, memory.create(len)?);
    // SAFETY: Each range is a separate reservation, and nothing uses it when it is released.
    unsafe {
        memory.map(one, &pages)?;
        memory.map(other, &pages)?;
        fill(device, one, 7, len)?;
        assert_eq!(byte(device, other)?, 7);
        memory.unmap(one, len)?;
        assert_eq!(byte(device, other)?, 7);
        memory.unmap(other, len)?;
        memory.destroy(pages);
        memory.release(one, len);
        memory.release(other, len);
    }
    check_nothing_mapped::<B>()
}

pub(crate) fn grows_in_place<B: Simulated>() -> Outcome {
    let device = &B::open(0)?;
    let memory = pager(device);
    let step = memory.granularity();
    let whole = step.saturating_mul(NonZeroU64::new(64).unwrap());
    let start = memory.reserve(whole)?;
    let before = device.memory_info()?.free;
    let mut mapped = Vec::new();
    for number in 0..8 {
        let (at, pages) = (start.offset(number * step.get()), memory.create(step)?);
        // SAFETY: The range is in the reservation, after the mapped part.
        unsafe { memory.map(at, &pages) }?;
        mapped.push(pages);
        fill(device, start, number as u8, NonZeroU64::new((number + 1) * step.get()).unwrap())?;
        assert_eq!(byte(device, at)?, number as u8);
    }
    assert_eq!(before - device.memory_info()?.free, 8 * step.get());
    // SAFETY: Eight whole mappings, which nothing uses, then their memory and the address space.
    unsafe {
        for (number, pages) in mapped.into_iter().enumerate() {
            memory.unmap(start.offset(number as u64 * step.get()), step)?;
            memory.destroy(pages);
        }
        memory.release(start, whole);
    }
    assert_eq!(device.memory_info()?.free, before);
    check_nothing_mapped::<B>()
}

/// Runs on a device with one GiB. The call with this name reports the error.
pub(crate) fn out_of_memory<B: Simulated>(call: &str) -> Outcome {
    let device = &B::open(0)?;
    let memory = pager(device);
    let whole = memory.create(NonZeroU64::new(GIB).unwrap())?;
    let error = memory.create(memory.granularity()).unwrap_err();
    assert_eq!((error.kind, error.call), (DriverErrorKind::OutOfMemory, call));
    // SAFETY: It was created here, and is not mapped.
    unsafe { memory.destroy(whole) };
    check_nothing_mapped::<B>()
}

/// The mapping call with this name fails once.
pub(crate) fn failed_map<B: Simulated>(call: &str) -> Outcome {
    let device = &B::open(0)?;
    let memory = pager(device);
    let len = memory.granularity();
    let (at, pages) = (memory.reserve(len)?, memory.create(len)?);
    B::fail(call, 1, B::REFUSED);
    // SAFETY: The range is a separate reservation.
    let refused = unsafe { memory.map(at, &pages) }.unwrap_err();
    assert_eq!(refused.call, call);
    // SAFETY: As above, and nothing is mapped there.
    unsafe {
        memory.map(at, &pages)?;
        memory.unmap(at, len)?;
        memory.destroy(pages);
        memory.release(at, len);
    }
    check_nothing_mapped::<B>()
}

/// Buffers that cross pages of the core's segments are copied in both directions, within a device and between two.
pub(crate) fn expandable_segments<B: Simulated>() -> Outcome {
    let (here, there) = (B::open(0)?, B::open(1)?);
    let settings = AllocatorConfig::default().updated("expandable_segments:True")?;
    let (here, there) = (Accelerator::new(here, 0, settings)?, Accelerator::new(there, 1, settings)?);
    for round in 0..8 {
        let (from, to) = if round % 2 == 0 { (here, there) } else { (there, here) };
        let (source_stream, stream) = (from.stream(0)?, to.stream(0)?);
        let (len, value) = (15 * MIB + round, round as u8);
        let mut sources = [from.allocate(len, source_stream)?, from.allocate(len, source_stream)?];
        let mut destination = to.allocate(len, stream)?;
        sources[0].fill(value, source_stream)?;
        let [first, second] = &mut sources;
        second.copy_from(first, source_stream)?;
        destination.copy_from(second, stream)?;
        drop(sources);
        from.allocate(2 * len, source_stream)?.fill(0xdd, source_stream)?; // reuses the same memory
        let mut read = vec![0; len as usize];
        destination.read(0, &mut read, stream)?;
        assert!(read.iter().all(|byte| *byte == value), "round {round}");
        if round % 3 == 0 {
            from.allocator().empty_cache()?;
        }
    }
    for device in [here, there] {
        assert_eq!(device.allocator().statistics().segment.all.allocated, 0);
        device.synchronize()?;
        device.allocator().empty_cache()?;
    }
    check_nothing_mapped::<B>()
}

/// A buffer assembled from memory of freed buffers, if the driver supports that. Every buffer keeps its bytes, whether
/// it does or not. The device needs 176 MiB, too little for all requests unless memory is assembled.
pub(crate) fn compact<B: Simulated>() -> Outcome {
    let settings = AllocatorConfig::default().updated("policy:compact")?;
    let device = Accelerator::new(B::open(0)?, 0, settings)?;
    let (stream, maps_twice) = (device.default_stream(), pager(device.backend()).maps_twice());
    let filled = |bytes: u64, value: u8| -> Result<_, Error> {
        let mut buffer = device.allocate(bytes, stream)?;
        buffer.fill(value, stream)?;
        Ok((buffer, value))
    };
    for round in 0..3 {
        let mut pieces = Vec::new();
        for number in 0..6 {
            pieces.push(filled(24 * MIB, number + 1)?);
        }
        let mut held: Vec<_> = pieces.into_iter().skip(1).step_by(2).collect();
        match filled(64 * MIB, 10 + round) {
            Err(Error::OutOfMemory(_)) if !maps_twice => {}
            long => held.push(long?),
        }
        held.push(filled(3 * MIB, 20 + round)?);
        for (buffer, value) in &held {
            let mut read = vec![0; buffer.len() as usize];
            buffer.read(0, &mut read, stream)?;
            assert!(read.iter().all(|byte| byte == value), "round {round}: {value}");
        }
    }
    device.synchronize()?;
    device.allocator().empty_cache()?;
    assert_eq!(device.allocator().statistics().reserved_bytes.all.current, 0);
    check_nothing_mapped::<B>()
}
