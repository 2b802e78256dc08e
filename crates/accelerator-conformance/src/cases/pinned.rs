//! H, the cache of pinned host memory: cases 77, 79 and 80.

use accelerator_core::{DriverErrorKind, Error, HostOutOfMemory, HostStatistics, KIB, MIB, PinnedBuffer, Stat};

use super::context::{Device, Driver, all_are};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::Failure;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(77, "power_of_two_classes", power_of_two_classes),
        Case::new(79, "empty_host_cache", empty_host_cache),
        Case::new(80, "host_statistics", host_statistics),
    ]
}

fn power_of_two_classes(context: &Context) -> Outcome {
    let device = context.device()?;
    sizes(device)?;
    reuse_after_the_event(device)?;
    not_while_captured(device)?;
    device.check_consistency();
    thresholds(context)?;
    out_of_host_memory(context)
}

fn sizes(device: Device) -> Outcome {
    let nothing = device.allocate_host(0)?;
    assert!(nothing.is_empty() && nothing.ptr().is_none() && nothing.bytes()?.is_empty());
    assert_eq!(device.calls(Call::AllocHost), 0, "0 bytes need no memory");
    for bytes in [1, 2, 3, 511, 512, 513, 4_096, 4_097, MIB - 1, MIB, MIB + 1] {
        let pinned = device.allocate_host(bytes)?;
        assert_eq!((pinned.len(), pinned.block_size()), (bytes, bytes.next_power_of_two()));
        assert_eq!(pinned.bytes()?.len() as u64, bytes);
        let place = place(&pinned);
        assert_eq!(place % 64, 0, "aligned");
        drop(pinned);
        let calls = device.all_calls();
        let again = device.allocate_host(bytes.next_power_of_two())?;
        assert_eq!(self::place(&again), place, "one block serves its whole size class");
        assert_eq!(device.all_calls(), calls, "the warm path makes no driver call");
    }
    let [first, second] = [device.allocate_host(100_000)?, device.allocate_host(100_000)?];
    let places = [place(&first), place(&second)];
    drop(first);
    drop(second);
    let [next, last] = [device.allocate_host(100_000)?, device.allocate_host(100_000)?];
    assert_eq!([place(&last), place(&next)], places, "the block freed last is allocated first");
    let smaller = device.allocate_host(20_000)?;
    assert!(!places.contains(&place(&smaller)), "blocks are not split");
    Ok(())
}

fn reuse_after_the_event(device: Device) -> Outcome {
    const SIZE: u64 = 3 * MIB;
    let (slow, quick) = (device.side_stream()?, device.side_stream()?);
    device.hold(slow);
    let [used, other] = [device.allocate_host(SIZE)?, device.allocate_host(SIZE)?];
    for stream in [slow, quick, slow] {
        used.record_use(stream)?;
    }
    other.record_use(quick)?;
    let (held, free) = (place(&used), place(&other));
    let records = device.calls(Call::Record);
    drop((used, other));
    assert_eq!(device.calls(Call::Record) - records, 3, "one event for each stream that uses a block");
    quick.synchronize()?;
    let next = device.allocate_host(SIZE)?;
    assert_eq!(place(&next), free, "a slow stream delays no other");
    let third = device.allocate_host(SIZE)?;
    assert_ne!(place(&third), held, "the block is in use");
    device.release(slow);
    slow.synchronize()?;
    let fourth = device.allocate_host(SIZE)?;
    assert_eq!(place(&fourth), held, "the event is complete");
    Ok(())
}

fn not_while_captured(device: Device) -> Outcome {
    const SIZE: u64 = 5 * MIB;
    let stream = device.side_stream()?;
    let used = device.allocate_host(SIZE)?;
    let taken = place(&used);
    used.record_use(stream)?;
    let captured = device.claim_capture(stream);
    let records = device.calls(Call::Record);
    drop(used);
    drop(device.allocate_host(1)?);
    assert_eq!(device.calls(Call::Record), records, "no event is recorded on a captured stream");
    let other = device.allocate_host(SIZE)?;
    assert_ne!(place(&other), taken, "the block waits for the end of the capture");
    drop(captured);
    drop(device.allocate_host(1)?);
    stream.synchronize()?;
    let again = device.allocate_host(SIZE)?;
    assert_eq!(place(&again), taken);
    Ok(())
}

fn thresholds(context: &Context) -> Outcome {
    let settings = "pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:4";
    let device = context.device_with(64 * MIB, settings)?;
    let odd = MIB + 1_000;
    let [small, middle, large] =
        [device.allocate_host(MIB - 1)?, device.allocate_host(odd)?, device.allocate_host(odd + 200 * KIB)?];
    assert_eq!([small.block_size(), middle.block_size()], [MIB, odd], "rounded up to the threshold only");
    let places = [place(&middle), place(&large)];
    drop((large, middle));
    // Both blocks are in the same size class. The one freed last would be reused first, but is too small.
    let between = device.allocate_host(odd + 100 * KIB)?;
    assert_eq!(place(&between), places[1]);
    let below = device.allocate_host(odd - 1)?;
    assert_eq!(place(&below), places[0]);
    for (bytes, kept) in [(4 * MIB, true), (4 * MIB + 1, false)] {
        let frees = device.calls(Call::DeallocHost);
        drop(device.allocate_host(bytes)?);
        assert_eq!(device.calls(Call::DeallocHost) - frees, u64::from(!kept), "{bytes} bytes");
    }
    let mut config = device.allocator().config();
    (config.pinned_max_round_threshold, config.pinned_max_cached_size) = (u64::MAX, 0);
    device.allocator().set_config(config);
    let odd = device.allocate_host(700)?;
    assert_eq!(odd.block_size(), 700, "a block that is not cached is not rounded");
    drop((odd, small, between, below));
    assert_eq!(device.host_statistics().active_bytes.current, 0);
    device.check_consistency();
    Ok(())
}

fn out_of_host_memory(context: &Context) -> Outcome {
    let device = context.device()?;
    device.backend().set_host_capacity(8 * MIB);
    let slow = device.side_stream()?;
    device.hold(slow);
    let pending = device.allocate_host(MIB)?;
    pending.record_use(slow)?;
    drop(pending);
    drop([device.allocate_host(2 * MIB)?, device.allocate_host(2 * MIB)?]);
    let large = device.allocate_host(4 * MIB)?;
    assert_eq!(device.backend().host_used(), 5 * MIB, "the cache was released to make room");
    drop(device.allocate_host(MIB)?);
    let report = refusal(device, 3 * MIB)?;
    let HostOutOfMemory { requested, block, driver, active, cached, .. } = &report;
    assert_eq!((*requested, *block), (3 * MIB, Some(4 * MIB)));
    assert_eq!((*active, *cached), (5 * MIB, MIB));
    assert!(driver.is_some_and(|driver| driver.kind == DriverErrorKind::OutOfMemory));
    let text = report.to_string();
    for part in ["3.00 MiB", "4.00 MiB", "5.00 MiB is in use", "1.00 MiB was cached", "synchronize"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(refusal(device, u64::MAX)?.block, None, "more than the address space");
    // A block that becomes available is used before anything is released, and other errors release nothing.
    drop((large, device.allocate_host(MIB)?));
    device.backend().fail_next(Call::AllocHost, DriverErrorKind::Other);
    assert!(matches!(device.allocate_host(2 * MIB), Err(Error::Driver { .. })));
    assert_eq!(device.backend().host_used(), 6 * MIB, "the cache is kept");
    device.release(slow);
    slow.synchronize()?;
    drop(device.allocate_host(3 * MIB)?);
    device.check_consistency();
    Ok(())
}

fn refusal(device: Device, bytes: u64) -> Result<HostOutOfMemory, Failure> {
    match device.allocate_host(bytes) {
        Err(Error::HostOutOfMemory(report)) => Ok(*report),
        other => Err(format!("{bytes} bytes: expected HostOutOfMemory, but got {other:?}").into()),
    }
}

fn empty_host_cache(context: &Context) -> Outcome {
    let device = context.device()?;
    let slow = device.side_stream()?;
    device.hold(slow);
    let [live, used] = [device.pinned(1_000, 7)?, device.pinned(MIB, 8)?];
    let free = [device.allocate_host(1_000)?, device.allocate_host(50_000)?];
    let taken = place(&used);
    used.record_use(slow)?;
    drop((used, free));
    let waits = device.calls(Call::WaitHost) + device.calls(Call::Synchronize);
    device.host_allocator().empty_cache()?;
    assert_eq!(device.calls(Call::WaitHost) + device.calls(Call::Synchronize), waits, "empty_cache waits for nothing");
    assert_eq!(device.calls(Call::DeallocHost), 2, "free blocks are returned");
    assert_eq!(device.backend().live_host_allocations(), 2);
    let HostStatistics { allocated_bytes, active_requests, .. } = device.host_statistics();
    assert_eq!((allocated_bytes.current, active_requests.current), (1_024 + (1 << 20), 2));
    all_are(live.bytes()?, 7, "live blocks stay")?;
    device.check_consistency();

    device.release(slow);
    slow.synchronize()?;
    let again = device.allocate_host(MIB)?;
    assert_eq!(place(&again), taken, "the block in use stayed");
    drop((again, live));
    device.host_allocator().empty_cache()?;
    assert_eq!(device.backend().live_host_allocations(), 0);
    device.host_allocator().empty_cache()?;
    device.check_consistency();
    Ok(())
}

fn host_statistics(context: &Context) -> Outcome {
    let device = context.device()?;
    assert!(!device.host_allocator().is_used());
    drop(device.allocate_host(0)?);
    assert_eq!(device.host_statistics(), HostStatistics::default());
    assert!(!device.host_allocator().is_used());

    // Two blocks of 128 bytes live at one time, one of 4096 at another. The peaks of the size classes still add up.
    let [first, second] = [device.allocate_host(100)?, device.allocate_host(128)?];
    drop(first);
    drop(second);
    let third = device.allocate_host(4_000)?;
    let statistics = device.host_statistics();
    assert!(device.host_allocator().is_used());
    assert_eq!(statistics.allocations, stat(3, 3, 3, 0));
    assert_eq!(statistics.allocated_bytes, stat(4_352, 4_352, 4_352, 0));
    assert_eq!(statistics.active_requests, stat(1, 3, 3, 2));
    assert_eq!(statistics.active_bytes, stat(4_096, 4_352, 4_352, 256));
    assert_eq!((statistics.host_alloc_time.count, statistics.host_free_time.count), (3, 0));

    // A hit counts as a request, not as an allocation. A block that a stream uses stays active.
    let slow = device.side_stream()?;
    device.hold(slow);
    let hit = device.allocate_host(65)?;
    hit.record_use(slow)?;
    drop((hit, third));
    let statistics = device.host_statistics();
    assert_eq!(statistics.allocations, stat(3, 3, 3, 0));
    assert_eq!(statistics.active_requests, stat(1, 3, 4, 3));
    assert_eq!(statistics.active_bytes, stat(128, 4_352, 4_480, 4_352));

    device.host_allocator().reset_peak_statistics();
    device.host_allocator().empty_cache()?;
    let statistics = device.host_statistics();
    assert_eq!(statistics.allocations, stat(1, 3, 3, 2));
    assert_eq!(statistics.allocated_bytes, stat(128, 4_352, 4_352, 4_224));
    assert_eq!(statistics.active_bytes, stat(128, 128, 4_480, 4_352));
    assert_eq!(statistics.host_free_time.count, 2);
    let entries = statistics.to_map();
    assert_eq!((entries["num_host_alloc"], entries["num_host_free"]), (3, 2));
    assert_eq!(entries["active_requests.allocated"], 4);

    device.host_allocator().reset_accumulated_statistics();
    let statistics = device.host_statistics();
    assert_eq!(statistics.allocations, stat(1, 3, 0, 0));
    assert_eq!(statistics.active_requests, stat(1, 1, 0, 0));
    assert_eq!((statistics.host_alloc_time.count, statistics.host_alloc_time.total), (0, 0));
    device.release(slow);
    Ok(())
}

fn stat(current: i64, peak: i64, allocated: i64, freed: i64) -> Stat {
    Stat { current, peak, allocated, freed }
}

/// Returns the address of the memory for comparison, or 0 if there is none.
pub(super) fn place(pinned: &PinnedBuffer<Driver>) -> usize {
    pinned.ptr().map_or(0, |start| start.as_ptr().addr())
}
