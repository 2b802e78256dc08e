//! F, expandable segments: cases 61 to 66.
//!
//! Addresses and numbers are those of PyTorch's own allocator for the same requests, with pages of 20 MiB.

use accelerator_core::{
    Backend, BlockState, Buffer, DevicePtr, DriverErrorKind, Error, GIB, MIB, OutOfMemoryCause, SegmentSnapshot,
};

use super::context::{Device, Driver, address, holds};
use super::out_of_memory::refusal;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(61, "grows_in_place", grows_in_place),
        Case::new(62, "unmaps_and_fills_holes", unmaps_and_fills_holes),
        Case::new(63, "batches_that_grow", batches_that_grow),
        Case::new(64, "switched_on_and_off", switched_on_and_off),
        Case::new(65, "max_split_and_garbage_collection", max_split_and_garbage_collection),
        Case::new(66, "address_space_exhausted", address_space_exhausted),
    ];
    cases.map(|case| case.needs(&[Capability::VirtualMemory]).or_else(falls_back)).into()
}

const SETTINGS: &str = "expandable_segments:True";

/// Without virtual memory, the same setting gives segments of fixed size.
fn falls_back(context: &Context) -> Outcome {
    let device = context.device_with(GIB, SETTINGS)?;
    assert!(!device.statistics().expandable_segments);
    let allocation = device.alloc(3 * MIB)?;
    assert_eq!(figures(device), [20 * MIB as i64, 1, 1, 0]);
    assert!(device.allocator().snapshot().segments.iter().all(|segment| !segment.expandable));
    device.check_consistency();
    Ok(device.free(allocation)?)
}

/// Returns a device with these settings and the size of its pages in the large pool.
fn expandable(context: &Context, settings: &str) -> Result<(Device, u64), Error> {
    let device = context.device_with(GIB, settings)?;
    Ok((device, page(device, 20 * MIB)))
}

/// Returns the driver memory that a page of this size takes.
fn page(device: Device, bytes: u64) -> u64 {
    let granularity = device.backend().virtual_memory().map(|memory| memory.granularity().get());
    bytes.next_multiple_of(granularity.unwrap_or(bytes))
}

/// Returns the reserved bytes, the number of segments of fixed size, and how often the driver allocated and freed
/// memory.
fn figures(device: Device) -> [i64; 4] {
    let statistics = device.statistics();
    let [reserved, segments] = [statistics.reserved_bytes, statistics.segment].map(|statistic| statistic.all.current);
    [reserved, segments, statistics.num_device_alloc, statistics.num_device_free]
}

/// Returns the ranges of mapped pages: each start relative to `from`, and its block sizes; sizes of free blocks are
/// negative.
fn ranges(device: Device, from: u64) -> Vec<(u64, Vec<i64>)> {
    let segments = device.allocator().snapshot().segments;
    let of = |segment: SegmentSnapshot| {
        let size = |free, size: u64| if free { -(size as i64) } else { size as i64 };
        let blocks = segment.blocks.iter();
        let sizes = blocks.map(|block| size(block.state == BlockState::Inactive, block.size)).collect();
        (segment.address.wrapping_sub(from), sizes)
    };
    segments.into_iter().filter(|segment| segment.expandable).map(of).collect()
}

/// Returns a buffer on the default stream, filled with the value if the memory stores bytes.
fn filled(context: &Context, device: Device, bytes: u64, value: u8) -> Result<Buffer<Driver>, Error> {
    if context.offers(Capability::Bytes) {
        return device.filled(bytes, value);
    }
    device.buffer(bytes, device.default_stream())
}

fn all_hold(context: &Context, device: Device, buffers: &[(&Buffer<Driver>, u8)]) -> Outcome {
    for (buffer, value) in buffers.iter().filter(|_| context.offers(Capability::Bytes)) {
        holds(buffer, *value, device.default_stream(), "the buffer keeps its bytes")?;
    }
    Ok(())
}

fn start(buffer: &Buffer<Driver>) -> u64 {
    buffer.ptr().map_or(0, DevicePtr::trace_address)
}

fn grows_in_place(context: &Context) -> Outcome {
    let (device, page) = expandable(context, SETTINGS)?;
    assert!(device.statistics().expandable_segments);
    let (half, large) = (page as i64 / 2, page as i64);
    let first = filled(context, device, page + page / 2, 1)?;
    let from = start(&first);
    assert_eq!(figures(device), [2 * large, 0, 1, 0]);
    assert_eq!(ranges(device, from), [(0, vec![3 * half, -half])]);
    let second = filled(context, device, page + page / 2, 2)?;
    assert_eq!(start(&second), from + page + page / 2, "free memory at the end is extended by new pages");
    assert_eq!(figures(device), [3 * large, 0, 2, 0]);
    assert_eq!(ranges(device, from), [(0, vec![3 * half, 3 * half])]);
    all_hold(context, device, &[(&first, 1), (&second, 2)])?;
    device.check_consistency();

    drop((first, second));
    let whole = filled(context, device, 5 * page, 3)?;
    assert_eq!((start(&whole), figures(device)), (from, [5 * large, 0, 3, 0]), "the segment must grow in place");
    all_hold(context, device, &[(&whole, 3)])?;
    let calls = [Call::Alloc, Call::Reserve, Call::Create, Call::Map, Call::Unmap];
    assert_eq!(calls.map(|call| device.calls(call)), [0, 1, 5, 5, 0], "pages are mapped one at a time");

    // The small pool and other streams have their own segments.
    let small = self::page(device, 2 * MIB);
    let mut little = Vec::new();
    while little.len() as u64 * MIB <= 2 * small {
        little.push(device.alloc(MIB)?);
    }
    let places: Vec<u64> = little.iter().map(|one| address(one) - address(&little[0])).collect();
    assert!(places.iter().enumerate().all(|(number, place)| *place == number as u64 * MIB), "{places:?}");
    assert_eq!(device.reserved(), 5 * page + 3 * small);
    let aside = device.alloc_on(2 * MIB, device.side_stream()?)?;
    assert_eq!((device.reserved(), device.calls(Call::Reserve)), (6 * page + 3 * small, 3));
    device.check_consistency();
    device.free_all(little)?;
    Ok(device.free(aside)?)
}

fn unmaps_and_fills_holes(context: &Context) -> Outcome {
    let (device, page) = expandable(context, SETTINGS)?;
    let (quarter, large) = (page as i64 / 4, page as i64);
    let user = device.side_stream()?;
    let first = filled(context, device, page, 1)?;
    let (hole, piece) = (device.buffer(page, device.default_stream())?, device.alloc(page / 4 * 3)?);
    let last = filled(context, device, page / 4 * 5, 4)?;
    let from = start(&first);
    assert_eq!(ranges(device, from), [(0, vec![large, large, 3 * quarter, 5 * quarter])]);

    // A page is unmapped when nothing uses it any more; less than a page stays mapped.
    device.hold(user);
    hole.record_use(user)?;
    device.free(piece)?;
    drop(hole);
    device.backend().start_log();
    device.allocator().empty_cache()?;
    let log = device.backend().take_log();
    assert_eq!(log.first(), Some(&Call::WaitHost), "pending blocks are waited for first");
    // `empty_cache` also waits for an event after all work of the stream.
    let [recorded, waited, unmapped, destroyed] = [Call::Record, Call::WaitHost, Call::Unmap, Call::Destroy]
        .map(|wanted| log.iter().rposition(|call| *call == wanted));
    assert!(recorded.is_some() && recorded < waited && waited < unmapped && unmapped < destroyed, "{log:?}");
    device.release(user);
    assert_eq!(figures(device), [3 * large, 0, 4, 1]);
    assert_eq!(
        ranges(device, from),
        [(0, vec![large]), (2 * page, vec![-3 * quarter, 5 * quarter])],
        "both parts keep their addresses"
    );
    let segments = device.allocator().snapshot().segments;
    assert_eq!(segments[0].created, segments[1].created, "both parts belong to one segment");
    device.check_consistency();

    // The lowest hole that fits is filled, together with the free memory behind it. A request that fits no hole goes to
    // the end.
    let filling = filled(context, device, page / 2 * 3, 5)?;
    assert_eq!((start(&filling), figures(device)), (from + page, [4 * large, 0, 5, 1]));
    let behind = filled(context, device, page / 5 * 3, 6)?;
    assert_eq!((start(&behind), figures(device)), (from + 4 * page, [5 * large, 0, 6, 1]));
    all_hold(context, device, &[(&first, 1), (&last, 4), (&filling, 5), (&behind, 6)])?;
    device.check_consistency();

    drop((first, last, filling, behind));
    device.allocator().empty_cache()?;
    assert_eq!(figures(device), [0, 0, 6, 2]);
    let taken = [Call::Reserve, Call::Create, Call::Map].map(|call| device.calls(call));
    let given_back = [Call::Release, Call::Destroy, Call::Unmap].map(|call| device.calls(call));
    assert_eq!((taken, given_back), ([1, 6, 6], [1, 6, 6]));
    Ok(())
}

/// Each batch needs a little more of everything, and the memory that the previous one leaves behind fits no request.
fn batches_that_grow(context: &Context) -> Outcome {
    let (device, page) = expandable(context, SETTINGS)?;
    for (batch, pages) in (4..9).zip([6, 7, 9, 10, 11]) {
        let mut layers = Vec::new();
        for layer in 2..8 {
            layers.push((filled(context, device, batch * layer * page / 20, layer as u8)?, layer as u8));
        }
        assert_eq!(device.reserved(), pages * page, "batch {batch}");
        let layers: Vec<_> = layers.iter().map(|(buffer, value)| (buffer, *value)).collect();
        all_hold(context, device, &layers)?;
        device.check_consistency();
    }
    assert_eq!(device.calls(Call::Reserve), 1);
    Ok(())
}

fn switched_on_and_off(context: &Context) -> Outcome {
    let (device, page) = expandable(context, "")?;
    let allocator = device.allocator();
    let default = allocator.config();
    let on = default.updated(SETTINGS)?;
    let (bytes, large, step) = (page / 2 * 3, page as i64, 20 * MIB as i64);
    let classic = large / 2 * 3;
    let first = device.alloc(bytes)?;
    let (kept, place) = (device.alloc(3 * MIB)?, address(&first));
    device.free(first)?;
    assert!(!device.statistics().expandable_segments);

    // Cached memory is still used; new memory is mapped.
    allocator.set_config(on);
    assert!(device.statistics().expandable_segments);
    let cached = [device.alloc(15 * MIB)?, device.alloc(3 * MIB)?];
    assert_eq!(address(&cached[0]), address(&kept) + 3 * MIB);
    assert_eq!(address(&cached[1]), place);
    let mapped = device.alloc(bytes)?;
    let place = address(&mapped);
    assert_eq!(figures(device), [classic + step + 2 * large, 2, 3, 0]);
    device.check_consistency();
    device.free(mapped)?;

    // When the setting is off, mapped memory serves no request.
    allocator.set_config(default);
    assert!(!device.statistics().expandable_segments);
    let segment = device.alloc(bytes)?;
    assert_eq!(figures(device), [2 * classic + step + 2 * large, 3, 4, 0]);
    device.check_consistency();
    allocator.set_config(on);
    let again = device.alloc(bytes)?;
    assert_eq!(address(&again), place);
    assert_eq!(figures(device), [2 * classic + step + 2 * large, 3, 4, 0]);

    // Mapped memory is still released.
    device.free_all([again, segment, kept])?;
    device.free_all(cached)?;
    allocator.set_config(default);
    device.allocator().empty_cache()?;
    assert_eq!(figures(device), [0, 0, 4, 4]);
    assert_eq!((device.calls(Call::Dealloc), device.calls(Call::Unmap)), (3, 2));
    device.check_consistency();
    Ok(())
}

fn max_split_and_garbage_collection(context: &Context) -> Outcome {
    // The device has 20 pages; half of them are allowed, and collection starts at a quarter.
    let rest = "max_split_size_mb:40,garbage_collection_threshold:0.5,per_process_memory_fraction:0.5";
    let mapping = format!("{SETTINGS},{rest}");
    let page = page(context.device()?, 20 * MIB);
    let (device, large) = (context.device_with(20 * page, &mapping)?, page as i64);
    let small = self::page(device, 2 * MIB) as i64;
    let sizes = [3 * page, page, page / 2];
    let [old, kept, half] = sizes.map(|bytes| device.alloc(bytes));
    let (old, kept, half) = (old?, kept?, half?);
    let from = address(&old);
    device.free(old)?;
    assert_eq!(figures(device), [5 * large, 0, 3, 0]);
    device.free(half)?;
    for _ in 0..2 {
        device.free_all([device.alloc(512)?])?;
    }
    // Over the threshold, free pages are not collected, but they are released when the limit refuses the request.
    let tail = device.alloc(5 * page)?;
    assert_eq!(address(&tail), from + 4 * page);
    assert_eq!(figures(device), [6 * large, 0, 5, 3]);
    assert_eq!(device.statistics().num_alloc_retries, 1);
    let front = device.alloc(3 * page)?;
    assert_eq!((address(&front), figures(device)), (from, [9 * large, 0, 6, 3]), "fills the hole");
    assert_eq!(device.statistics().oversize_allocations.current, 2);
    assert_eq!(refusal(device, page / 2 * 3)?.cause, OutOfMemoryCause::Limit);
    device.check_consistency();
    device.free_all([front, tail, kept])?;

    // Segments of fixed size are still collected beside them, and are split however large they are.
    let device = context.device_with(20 * page, rest)?;
    let oversize = device.alloc(3 * page)?;
    let place = address(&oversize);
    device.free(oversize)?;
    device.allocator().set_config(device.allocator().config().updated(&mapping)?);
    let mapped = device.alloc(page / 2 * 3)?;
    let from = address(&mapped);
    device.free(mapped)?;
    for _ in 0..3 {
        device.free_all([device.alloc(512)?])?;
    }
    assert_eq!(figures(device), [5 * large + small, 1, 3, 0]);
    let split = device.alloc(page / 2 * 5)?;
    assert_eq!((address(&split), split.size()), (place, page / 2 * 5));
    device.free(split)?;
    let next = device.alloc(5 * page)?;
    assert_eq!((address(&next), figures(device)), (from, [5 * large + small, 0, 4, 1]));
    assert_eq!((device.calls(Call::Dealloc), device.calls(Call::Unmap)), (1, 0));
    device.check_consistency();
    Ok(device.free(next)?)
}

fn address_space_exhausted(context: &Context) -> Outcome {
    let (device, page) = expandable(context, SETTINGS)?;
    let driver = device.backend();
    // A single refusal: a range of half the length is reserved.
    driver.fail_next(Call::Reserve, DriverErrorKind::OutOfMemory);
    let first = device.alloc(page)?;
    assert_eq!((device.statistics().num_alloc_retries, device.calls(Call::Reserve)), (0, 2));
    // Every range is refused, on another stream: there is no address space. The existing reservation is still used.
    for _ in 0..u64::BITS * 2 {
        driver.fail_next(Call::Reserve, DriverErrorKind::OutOfMemory);
    }
    let side = device.side_stream()?;
    match device.alloc_on(page, side) {
        Err(Error::OutOfMemory(report)) => {
            assert_eq!(report.cause, OutOfMemoryCause::AddressSpace);
            assert!(report.to_string().contains("address space"), "{report}");
        }
        other => return Err(format!("expected out of memory, not {other:?}").into()),
    }
    assert_eq!((figures(device), device.statistics().num_alloc_retries), ([page as i64, 0, 1, 0], 1));
    device.check_consistency();
    driver.clear_failures();
    let second = device.alloc(page)?;
    assert_eq!(address(&second), address(&first) + page);
    // Any other error is returned unchanged.
    driver.fail_next(Call::Reserve, DriverErrorKind::Other);
    match device.alloc_on(page, side) {
        Err(Error::Driver { .. }) => {}
        other => return Err(format!("expected an error of the driver, not {other:?}").into()),
    }
    let third = device.alloc_on(page, side)?;
    assert_eq!((device.reserved(), driver.live_reservations()), (3 * page, 2));
    device.check_consistency();
    Ok(device.free_all([first, second, third])?)
}
