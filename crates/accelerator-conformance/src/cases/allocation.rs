//! B, single allocations: cases 16 to 22, 28 and 30.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_core::{Backend, Buffer, DevicePtr, Error, MIB, OutOfMemoryCause, Place, Statistics, Stream};

use super::context::{Device, Driver, address, bytes_of};
use super::random::Random;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::erased::AnyPtr;
use crate::faulty::{POISON, UseAfterFree};
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(16, "zero_bytes", zero_bytes).of_any_policy(),
        Case::new(17, "one_byte_takes_512", one_byte_takes_512),
        Case::new(18, "alignment", alignment).of_any_policy(),
        Case::new(19, "live_blocks_never_overlap", live_blocks_never_overlap).of_any_policy(),
        Case::new(20, "huge_size_is_out_of_memory", huge_size_is_out_of_memory).of_any_policy(),
        Case::new(21, "unknown_pointer_and_double_free", unknown_pointer_and_double_free).of_any_policy(),
        Case::new(22, "wrong_device_or_stream", wrong_device_or_stream).of_any_policy(),
        Case::new(28, "buffers_keep_their_bytes", buffers_keep_their_bytes).of_any_policy().needs(&[Capability::Bytes]),
        Case::new(30, "use_after_free_is_caught_under_poison", use_after_free)
            .of_any_policy()
            .needs(&[Capability::Bytes]),
    ]
}

fn zero_bytes(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.default_stream();
    let calls = device.all_calls();
    let mut buffer = device.buffer(0, stream)?;
    assert!(buffer.ptr().is_none() && buffer.is_empty() && buffer.block_size() == 0);
    buffer.fill(1, stream)?;
    buffer.write(0, &[], stream)?;
    buffer.read(0, &mut [], stream)?;
    buffer.record_use(device.side_stream()?)?;
    assert!(matches!(buffer.write(0, &[1], stream), Err(Error::OutOfBounds { .. })));
    assert!(matches!(buffer.read(1, &mut [], stream), Err(Error::OutOfBounds { .. })));
    drop(buffer);
    assert_eq!(device.allocator().raw_alloc(0, stream)?, None);
    assert_eq!(device.all_calls() - calls, 1, "the driver made a stream and nothing else");
    assert_eq!(device.statistics(), Statistics { max_split_size: -1, ..Statistics::default() });
    Ok(())
}

fn one_byte_takes_512(context: &Context) -> Outcome {
    let device = context.device()?;
    let allocation = device.alloc(1)?;
    assert_eq!((allocation.requested().get(), allocation.size()), (1, 512));
    let statistics = device.statistics();
    assert_eq!(statistics.requested_bytes.small_pool.current, 1);
    assert_eq!(statistics.allocated_bytes.small_pool.current, 512);
    assert_eq!(statistics.reserved_bytes.small_pool.current, 2 * MIB as i64);
    device.check_consistency();
    device.free(allocation)?;
    device.check_consistency();
    Ok(())
}

fn alignment(context: &Context) -> Outcome {
    let device = context.device()?;
    let alignment = device.properties().alignment;
    let sizes = [1, 511, 513, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB + 7, 11 * MIB + 1, 1, 513, 30 * MIB];
    let live: Vec<_> = sizes.into_iter().map(|size| device.alloc(size)).collect::<Result<_, _>>()?;
    for segment in device.allocator().snapshot().segments {
        assert!(segment.address.is_multiple_of(alignment), "{segment:?} must be aligned to {alignment}");
    }
    let at_least = alignment.min(512);
    for allocation in &live {
        assert!(address(allocation).is_multiple_of(at_least), "{allocation:?} must be aligned to {at_least}");
        let end = allocation.ptr().offset(allocation.size() - 1).trace_address();
        assert_eq!(end, address(allocation) + allocation.size() - 1, "trace addresses count bytes");
    }
    Ok(device.free_all(live)?)
}

fn live_blocks_never_overlap(context: &Context) -> Outcome {
    let device = context.device()?;
    let streams = [device.default_stream(), device.side_stream()?, device.side_stream()?];
    let mut random = Random::new(19);
    let mut live = BTreeMap::new();
    for step in 0..5_000_u64 {
        if random.below(5) < 2 && !live.is_empty() {
            let place = random.below(live.len() as u64) as usize;
            let Some(start) = live.keys().nth(place).copied() else { continue };
            device.free_all(live.remove(&start))?;
            continue;
        }
        let stream = streams[random.below(3) as usize];
        let allocation = match device.alloc_on(random.size(8 * MIB), stream) {
            Ok(allocation) => allocation,
            Err(Error::OutOfMemory(_)) => {
                device.free_all(std::mem::take(&mut live).into_values())?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        assert!(allocation.size() >= allocation.requested().get());
        let (start, end) = (address(&allocation), address(&allocation) + allocation.size());
        if let Some((before, other)) = live.range(..end).next_back() {
            assert!(before + other.size() <= start, "step {step}: {allocation:?} overlaps {other:?}");
        }
        live.insert(start, allocation);
    }
    device.check_consistency();
    Ok(device.free_all(live.into_values())?)
}

fn huge_size_is_out_of_memory(context: &Context) -> Outcome {
    let small = context.device()?;
    let whole = context.whole_device()?;
    let beyond = [u64::MAX, u64::MAX - 511, 1 << 63, i64::MAX as u64, 1 << 60, (1 << 60) - 1, 1 << 59];
    for device in [small, whole] {
        for bytes in beyond {
            let cause = match device.alloc(bytes) {
                Err(Error::OutOfMemory(report)) => {
                    assert_eq!(report.requested, bytes);
                    report.cause
                }
                other => {
                    return Err(format!("expected out of memory for {bytes} bytes, not {other:?}").into());
                }
            };
            let largest = device.properties().largest_allocation;
            match cause {
                OutOfMemoryCause::TooLarge => assert!(bytes >= 1 << 60, "{bytes} bytes"),
                OutOfMemoryCause::AllocationTooLarge { largest: told, .. } => {
                    assert_eq!(told, largest);
                    assert!((largest..1 << 60).contains(&bytes), "{bytes} bytes, but {largest} can be allocated");
                }
                cause => assert_eq!(cause, OutOfMemoryCause::Device, "{bytes} bytes"),
            }
        }
        assert_eq!(device.reserved(), 0);
        device.check_consistency();
        let usable = device.alloc(MIB)?;
        device.free(usable)?;
    }
    Ok(())
}

fn unknown_pointer_and_double_free(context: &Context) -> Outcome {
    let (device, other) = (context.device()?, context.device()?);
    let stream = device.default_stream();
    let allocator = device.allocator();
    let ptr = allocator.raw_alloc(5_000, stream)?.ok_or("no pointer for 5,000 bytes")?;
    let foreign = other.allocator().raw_alloc(64, other.default_stream())?.ok_or("no pointer for 64 bytes")?;
    assert_eq!(allocator.raw_size(ptr)?, 5_120);
    let before = device.statistics();
    for unknown in [ptr.offset(512), ptr.offset(1 << 20), foreign] {
        let is_unknown = |result: Result<u64, Error>| {
            let address = unknown.trace_address();
            matches!(result, Err(Error::UnknownPointer { address: named, .. }) if named == address)
        };
        assert!(is_unknown(allocator.raw_free(unknown).map(|()| 0)), "free of {unknown:?}");
        assert!(is_unknown(allocator.raw_size(unknown)), "size of {unknown:?}");
        assert!(is_unknown(allocator.raw_record_use(unknown, stream).map(|()| 0)), "use of {unknown:?}");
    }
    assert_eq!(device.statistics(), before, "nothing changed");
    allocator.raw_record_use(ptr, stream)?;
    allocator.raw_free(ptr)?;
    let freed = device.statistics();
    assert!(matches!(allocator.raw_free(ptr), Err(Error::UnknownPointer { .. })), "freed twice");
    assert_eq!(device.statistics(), freed);
    other.allocator().raw_free(foreign)?;
    device.check_consistency();
    other.check_consistency();
    Ok(())
}

fn wrong_device_or_stream(context: &Context) -> Outcome {
    let (here, there) = (context.device()?, context.device()?);
    let foreign = there.default_stream();
    let mismatch = |result: Result<(), Error>| matches!(result, Err(Error::DeviceMismatch { .. }));
    let allocation = here.alloc(1_000)?;
    let mut buffer = here.buffer(1_000, here.default_stream())?;
    let before = (here.statistics(), there.statistics());
    assert!(mismatch(here.alloc_on(1_000, foreign).map(drop)));
    assert!(mismatch(here.buffer(1_000, foreign).map(drop)));
    assert!(mismatch(here.buffer(0, foreign).map(drop)), "also for zero bytes");
    assert!(mismatch(here.allocator().raw_alloc(0, foreign).map(drop)));
    assert!(mismatch(here.allocator().record_use(&allocation, foreign)));
    assert!(mismatch(there.allocator().record_use(&allocation, foreign)));
    assert!(mismatch(buffer.record_use(foreign)));
    assert!(mismatch(buffer.fill(1, foreign)));
    assert!(mismatch(buffer.write(0, &[1], foreign)));
    assert!(mismatch(buffer.read(0, &mut [1], foreign)));
    let elsewhere = there.buffer(10, foreign)?;
    assert!(mismatch(buffer.copy_from(&elsewhere, here.default_stream())));
    drop(elsewhere);
    assert_eq!(here.statistics(), before.0);
    assert_eq!(there.statistics().allocation.all.current, before.1.allocation.all.current);

    // An allocation freed through the wrong allocator is handed back.
    let foreign = there.allocator().free(allocation).err().ok_or("freed an allocation of another device")?;
    assert!(matches!(foreign.error, Error::DeviceMismatch { .. }));
    assert_eq!(here.statistics(), before.0);
    Ok(here.free(foreign.allocation)?)
}

/// A buffer, the value that it is filled with, and the stream that filled it.
type Held = (Buffer<Driver>, u8, Stream<Driver>);

fn buffers_keep_their_bytes(context: &Context) -> Outcome {
    keep_their_bytes(context.device()?, 10_000)?;
    if context.is_compact() {
        return Ok(()); // the setting below has no effect
    }
    keep_their_bytes(context.expandable_device()?, 3_000)
}

fn keep_their_bytes(device: Device, steps: u64) -> Outcome {
    let streams = [device.default_stream(), device.side_stream()?, device.side_stream()?];
    let mut random = Random::new(28);
    let mut live: Vec<Held> = Vec::new();
    for step in 0..steps {
        if step % 1_000 == 999 {
            device.allocator().empty_cache()?;
        }
        if live.len() < 64 && random.below(2) == 0 {
            let size = if random.below(200) == 0 { 3 * MIB } else { random.size(32 << 10) };
            let (own, filler) = (streams[random.below(3) as usize], streams[random.below(3) as usize]);
            let mut buffer = device.buffer(size, own)?;
            filler.wait_stream(own)?;
            buffer.fill(step as u8, filler)?;
            live.push((buffer, step as u8, filler));
        } else if !live.is_empty() {
            let (buffer, value, filler) = live.swap_remove(random.below(live.len() as u64) as usize);
            let bytes = bytes_of(&buffer, filler)?;
            let wrong = bytes.iter().position(|byte| *byte != value);
            assert_eq!(wrong, None, "step {step}: {buffer:?} was filled with {value} on {filler:?}");
        }
    }
    device.check_consistency();
    assert!(device.statistics().num_device_alloc < 200, "memory is reused");
    Ok(())
}

fn use_after_free(context: &Context) -> Outcome {
    // Without a cache every free reaches the driver, where it is poisoned and kept.
    let device = context.device_with(64 * MIB, "caching:False")?;
    let stream = device.default_stream();
    device.backend().start_quarantine();
    let ptr = device.allocator().raw_alloc(4_096, stream)?.ok_or("no pointer for 4,096 bytes")?;
    raw_write(device, ptr.offset(100), 1)?;
    device.allocator().raw_free(ptr)?;
    assert_eq!(device.calls(Call::Dealloc), 1);
    assert_eq!(device.backend().check_quarantine()?, [], "writes before the free are allowed");
    assert_eq!(raw_read(device, ptr.offset(100))?, POISON, "a read after the free sees poison");
    raw_write(device, ptr.offset(100), 2)?;
    let found = device.backend().check_quarantine()?;
    assert_eq!(found, [UseAfterFree { address: ptr.trace_address() + 100 }]);
    device.backend().end_quarantine();
    Ok(())
}

/// Writes one byte, as a program with a stale pointer does.
#[allow(unsafe_code)] // `Backend::copy`
pub(super) fn raw_write(device: Device, ptr: AnyPtr, byte: u8) -> Outcome {
    let from = Place::Host(NonNull::from(&byte));
    let stream = device.default_stream();
    // SAFETY: The memory is allocated, or still exists in quarantine; the byte outlives the synchronize.
    let copied = unsafe { device.backend().copy(Place::Device(ptr), from, NonZeroU64::MIN, stream.native()) };
    copied?;
    Ok(stream.synchronize()?)
}

/// Reads one byte, as a program with a stale pointer does.
#[allow(unsafe_code)] // `Backend::copy`
pub(super) fn raw_read(device: Device, ptr: AnyPtr) -> Result<u8, Failure> {
    let mut byte = 0;
    let to = Place::Host(NonNull::from(&mut byte));
    let stream = device.default_stream();
    // SAFETY: The memory still exists in quarantine; the byte outlives the synchronize.
    let copied = unsafe { device.backend().copy(to, Place::Device(ptr), NonZeroU64::MIN, stream.native()) };
    copied?;
    stream.synchronize()?;
    Ok(byte)
}
