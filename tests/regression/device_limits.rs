//! Devices whose largest allocation is smaller than their memory, and external streams.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, BlockState, DriverError, DriverErrorKind, Error, EventFlags, GIB, KIB, MIB,
    OutOfMemory, OutOfMemoryCause, StreamKind,
};

fn limited(largest: u64, settings: &str) -> &'static Accelerator<Sim> {
    let config = AllocatorConfig::default().updated(settings).unwrap();
    Accelerator::new(Sim::new(GIB).with_largest_allocation(largest), 0, config).unwrap()
}

fn refusal(device: &'static Accelerator<Sim>, bytes: u64) -> OutOfMemory {
    match device.allocate(bytes, device.default_stream()) {
        Err(Error::OutOfMemory(report)) => *report,
        other => unreachable!("{bytes} bytes: {other:?}"),
    }
}

#[test]
fn a_segment_is_as_large_as_the_device_gives_where_its_block_fits() {
    // The largest allocation, the request, the segment, and its block, which is smaller where splitting is worthwhile.
    for (largest, requested, segment, block) in [
        (u64::MAX, 2 * MIB, 20 * MIB, 2 * MIB),
        (20 * MIB, 2 * MIB, 20 * MIB, 2 * MIB),
        (16 * MIB, 2 * MIB, 16 * MIB, 2 * MIB),
        (16 * MIB - 100, 2 * MIB, 16 * MIB - 512, 2 * MIB),
        (16 * MIB + 511, 2 * MIB, 16 * MIB, 2 * MIB),
        (3 * MIB + 1, 2 * MIB, 3 * MIB, 3 * MIB),
        (2 * MIB + 511, 2 * MIB - 1, 2 * MIB, 2 * MIB),
        (16 * MIB, 13 * MIB, 14 * MIB, 14 * MIB),
        (13 * MIB + 512 * KIB, 13 * MIB, 13 * MIB + 512 * KIB, 13 * MIB + 512 * KIB),
        (13 * MIB + 511, 13 * MIB, 13 * MIB, 13 * MIB),
        (3 * MIB, 1, 2 * MIB, 512),
        (MIB + 1, 1, MIB, 512),
        (1_023, 512, 512, 512),
    ] {
        let device = limited(largest, "");
        let buffer = device.allocate(requested, device.default_stream()).unwrap();
        assert_eq!((buffer.block_size(), device.backend().used()), (block, segment), "{requested} of {largest}");
        let segments = device.allocator().snapshot().segments;
        assert_eq!(segments.len(), 1);
        assert_eq!((segments[0].total_size, segments[0].allocated_size), (segment, block));
        let rest = segments[0].blocks.get(1).map(|rest| (rest.address, rest.size, rest.state));
        let cut = (segments[0].address + block, segment - block, BlockState::Inactive);
        assert_eq!(rest, (segment > block).then_some(cut));
        let statistics = device.allocator().statistics();
        assert_eq!(statistics.reserved_bytes.all.current, segment as i64);
        assert_eq!(statistics.inactive_split_bytes.all.current, (segment - block) as i64);
        assert_eq!((statistics.num_device_alloc, statistics.num_alloc_retries), (1, 0));
    }
}

#[test]
fn what_is_left_of_a_smaller_segment_is_served() {
    let device = limited(16 * MIB - 100, "");
    let stream = device.default_stream();
    let buffers = [2 * MIB, 9 * MIB, 4 * MIB].map(|bytes| device.allocate(bytes, stream).unwrap());
    let segments = device.allocator().snapshot().segments;
    let sizes: Vec<_> = segments.iter().map(|segment| (segment.total_size, segment.allocated_size)).collect();
    // The rest is 512 bytes short of 1 MiB, too little for a separate block in the large pool.
    assert_eq!(sizes, [(16 * MIB - 512, 16 * MIB - 512)]);
    let start = buffers[0].ptr();
    drop(buffers);
    assert_eq!(device.allocate(16 * MIB - 600, stream).unwrap().ptr(), start, "whole again");
}

#[test]
fn a_request_over_the_largest_allocation_is_told_so_and_costs_no_cache() {
    let device = limited(16 * MIB, "");
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let observed = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&observed);
    allocator.add_out_of_memory_observer(move |report| told.lock().unwrap().push(report.clone()));
    drop([12 * MIB, 13 * MIB, MIB].map(|bytes| device.allocate(bytes, stream).unwrap()));
    let live = device.allocate(MIB, stream).unwrap();
    let before = (allocator.snapshot(), allocator.statistics(), device.backend().used());

    let report = refusal(device, 16 * MIB + 1);
    let kind = DriverErrorKind::AllocationTooLarge;
    let driver = DriverError::refused(kind, "alloc", "more than the largest allocation");
    assert_eq!(report.cause, OutOfMemoryCause::AllocationTooLarge { largest: 16 * MIB, driver });
    assert_eq!((report.requested, report.segment), (16 * MIB + 1, 18 * MIB));
    let text = report.to_string();
    for part in ["16.00 MiB", "alloc was refused: more than the largest allocation"] {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
    assert_eq!(*observed.lock().unwrap(), [report]);

    let mut statistics = allocator.statistics();
    assert_eq!((statistics.num_ooms, statistics.num_alloc_retries, statistics.num_sync_all_streams), (1, 0, 0));
    statistics.num_ooms = 0;
    assert_eq!((allocator.snapshot(), statistics, device.backend().used()), before);
    assert_eq!(device.backend().calls().of(Call::Dealloc), 0);

    // The device works as before.
    let cached = device.allocate(13 * MIB, stream).unwrap();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, before.1.reserved_bytes.all.current);
    drop((cached, live));
    allocator.empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

#[test]
fn a_too_large_request_costs_no_cache_under_a_memory_fraction_either() {
    let device = limited(16 * MIB, "garbage_collection_threshold:0.1");
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let total = device.properties().total_memory;
    allocator.set_memory_fraction((24 * MIB) as f64 / total as f64).unwrap();
    drop(device.allocate(13 * MIB, stream).unwrap());
    let before = allocator.snapshot();
    assert_eq!(refusal(device, 16 * MIB + 1).cause, OutOfMemoryCause::Limit);
    assert_eq!(allocator.snapshot(), before);
    let calls = device.backend().calls();
    assert_eq!((calls.of(Call::Alloc), calls.of(Call::Dealloc)), (1, 0));
}

#[test]
fn a_request_that_is_too_large_only_when_it_is_rounded_is_refused_too() {
    for settings in ["", "caching:False"] {
        let device = limited(16 * MIB - 100, settings);
        let report = refusal(device, 16 * MIB - 200);
        let OutOfMemoryCause::AllocationTooLarge { largest, .. } = report.cause else { unreachable!("{report:?}") };
        assert_eq!(largest, 16 * MIB - 100);
        drop(device.allocate(16 * MIB - 512, device.default_stream()).unwrap());
    }
}

#[test]
fn a_stream_made_elsewhere_is_one_of_the_device() {
    let device = limited(u64::MAX, "");
    let backend = device.backend();
    let own = device.stream(0).unwrap();
    let native = backend.stream(StreamKind::Side { priority: -1 }).unwrap();
    let made = backend.calls().of(Call::Stream);
    // SAFETY: A stream of this backend, with the properties that a backend guarantees for streams.
    let adopted = unsafe { device.external_stream(native) };
    assert_eq!(backend.calls().of(Call::Stream), made, "none was made");
    assert_eq!((adopted.device(), adopted.priority()), (device.device(), 0));
    assert_eq!(device.stream_by_id(adopted.id()), Some(adopted));
    assert!(adopted != own && adopted.id() != own.id() && adopted.id() != device.default_stream().id());

    // A wait for all streams includes the adopted one.
    backend.hold(adopted.native());
    let event = device.event(EventFlags::default());
    event.record(adopted).unwrap();
    assert!(!event.is_complete().unwrap() && !adopted.is_idle().unwrap());
    device.synchronize().unwrap();
    assert!(event.is_complete().unwrap());

    // Memory that the adopted stream uses is not reused too early, and the stream has memory of its own.
    let used = device.allocate(MIB, own).unwrap();
    let at = used.ptr();
    used.record_use(adopted).unwrap();
    drop(used);
    assert_ne!(device.allocate(MIB, own).unwrap().ptr(), at);
    backend.release(adopted.native());
    assert_eq!(device.allocate(MIB, own).unwrap().ptr(), at);
    let of_its_own = device.allocate(MIB, adopted).unwrap();
    let segments = device.allocator().snapshot().segments;
    assert_eq!(segments.iter().filter(|segment| segment.stream == adopted.id()).count(), 1);
    assert_eq!(of_its_own.stream(), adopted);

    // The adopted stream is not in the pool, which works as before.
    let pool: Vec<_> = (0..64).map(|_| device.stream(0).unwrap()).collect();
    assert!(pool.contains(&own) && !pool.contains(&adopted));
    let other = limited(u64::MAX, "");
    assert!(matches!(other.allocate(MIB, adopted), Err(Error::DeviceMismatch { .. })));
}
