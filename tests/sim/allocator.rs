//! The allocator on the simulated device, where a test can say what the driver has to do.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{
    BlockState, ContextsOf, DevicePtr, DriverErrorKind, Error, EventFlags, HistoryAction, MIB, MemPool, MemPoolId,
    MemPoolOptions, MemPoolRequests, OutOfMemoryCause, Recording, TraceAction,
};
use libtest_mimic::{Failed, Trial};

use super::device;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("allocator::is_used_from_the_first_request_on", is_used),
        Trial::test("allocator::memory_by_pointer_is_what_the_snapshot_shows", by_pointer),
        Trial::test("allocator::streams_have_the_priority_that_was_asked_for_within_the_range", priorities),
        Trial::test("allocator::one_reservation_serves_all_memory_of_the_device", one_reservation),
        Trial::test("allocator::less_address_space_is_reserved_where_there_is_little", little_address_space),
        Trial::test("allocator::under_compact_a_request_gets_the_last_bytes_of_the_device", last_bytes),
        Trial::test("allocator::callbacks_are_asked_for_the_largest_request_and_for_no_larger_one", largest),
        Trial::test("allocator::pools_help_out_only_while_they_are_told_to", helping_pools),
        Trial::test("allocator::pools_that_are_gone_help_nobody_out", gone_pools),
        Trial::test("allocator::garbage_is_collected_until_just_enough_has_gone_back", garbage),
        Trial::test("allocator::a_history_that_nobody_recorded_has_the_settings", unrecorded),
        Trial::test("allocator::a_free_segment_next_to_another_serves_a_request_for_its_address", at_an_address),
        Trial::test("allocator::pools_of_both_kinds_use_arenas_of_pools_that_are_gone", pools_in_turn),
        Trial::test("allocator::under_compact_segments_and_entries_have_their_streams", streams_under_compact),
        Trial::test("allocator::memory_of_compact_serves_no_requests_under_another_policy", after_compact),
        Trial::test("allocator::a_history_tells_of_which_pool_a_snapshot_was_taken", snapshot_of_a_pool),
        Trial::test("allocator::debug_texts_say_what_it_is", debug_texts),
        Trial::test("allocator::what_the_driver_does_not_take_back_is_counted_and_used_again", partly_given_back),
    ]
}

fn is_used() -> Result<(), Failed> {
    let device = device(Sim::new(64 * MIB), "")?;
    let allocator = device.allocator();
    assert!(!allocator.is_used() && !device.host_allocator().is_used());
    drop(device.allocate(0, device.default_stream())?);
    assert!(!allocator.is_used(), "no block was searched for");
    drop(device.allocate(1, device.default_stream())?);
    assert!(allocator.is_used() && !device.host_allocator().is_used());
    allocator.empty_cache()?;
    assert!(allocator.is_used());
    Ok(())
}

fn by_pointer() -> Result<(), Failed> {
    let device = device(Sim::new(64 * MIB), "")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    assert_eq!(allocator.raw_alloc(0, stream)?, None);
    let [one, other] = [1000, 3 * MIB].map(|bytes| allocator.raw_alloc(bytes, stream));
    let (one, other) = (one?.ok_or("no memory")?, other?.ok_or("no memory")?);
    let snapshot = allocator.snapshot();
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let live = blocks.filter(|block| block.state == BlockState::Allocated);
    let shown: Vec<_> = live.map(|block| (block.address, block.size)).collect();
    let told = [one, other].map(|ptr| (ptr.trace_address(), allocator.raw_size(ptr).unwrap_or(0)));
    assert_eq!(shown, told);
    assert_eq!(told.map(|(_, size)| size), [1024, 3 * MIB]);
    allocator.raw_free(one)?;
    for unknown in [one, other.offset(512)] {
        for refused in [allocator.raw_size(unknown).map(drop), allocator.raw_free(unknown)] {
            let address = unknown.trace_address();
            assert!(matches!(refused, Err(Error::UnknownPointer { address: at, .. }) if at == address), "{refused:?}");
        }
    }
    allocator.raw_free(other)?;
    assert_eq!(allocator.statistics().allocated_bytes.all.current, 0);
    Ok(())
}

fn priorities() -> Result<(), Failed> {
    let device = device(Sim::new(64 * MIB), "")?;
    let (least, greatest) = device.properties().stream_priorities;
    for (asked, expected) in [(least, least), (greatest, greatest), (least + 3, least), (greatest - 3, greatest)] {
        assert_eq!([device.stream(asked)?.priority(), device.dedicated_stream(asked)?.priority()], [expected; 2]);
    }
    assert_ne!(least, greatest);
    Ok(())
}

/// In the end, an eighth of the device is free at the start of the reservation, and as much is mapped beyond 8/8.
fn one_reservation() -> Result<(), Failed> {
    let device = device(Sim::new(1600 * MIB), "expandable_segments:True")?;
    let stream = device.default_stream();
    let mut buffers = (0..7).map(|_| device.allocate(200 * MIB, stream)).collect::<Result<Vec<_>, _>>()?;
    drop(buffers.remove(0));
    buffers.push(device.allocate(380 * MIB, stream)?);
    assert_eq!(device.backend().used(), (6 * 200 + 380) * MIB);
    let [first, last] = [&buffers[0], &buffers[6]].map(|buffer| buffer.ptr().map_or(0, DevicePtr::trace_address));
    assert_eq!(last - first, 6 * 200 * MIB, "they follow one another");
    assert_eq!(device.backend().calls().of(Call::Reserve), 1);
    Ok(())
}

fn little_address_space() -> Result<(), Failed> {
    use DriverErrorKind::{Other, OutOfMemory};
    // The device has 160 MiB, so 180 MiB are reserved, or 80 MiB, or 40 MiB, and last what the request needs: whole
    // pages of 20 MiB.
    for (kind, refused, requested, is_served) in [
        (OutOfMemory, 1, 80, true),
        (OutOfMemory, 2, 40, true),
        (OutOfMemory, 1, 81, true),  // 100 MiB, between two halvings
        (OutOfMemory, 4, 81, false), // the second attempt, when the cache is empty, is refused, too
        (Other, 1, 20, false),
    ] {
        let device = device(Faulty::new(Sim::new(160 * MIB)), "expandable_segments:True")?;
        (0..refused).for_each(|_| device.backend().fail_next(Call::Reserve, kind));
        match device.allocate(requested * MIB, device.default_stream()) {
            Ok(_) => assert!(is_served && device.allocator().statistics().num_alloc_retries == 0, "{requested}"),
            Err(Error::OutOfMemory(report)) => {
                assert_eq!((is_served, report.cause), (false, OutOfMemoryCause::AddressSpace), "{requested}");
            }
            Err(error) => assert_eq!((is_served, kind), (false, Other), "{requested}: {error}"),
        }
    }
    Ok(())
}

fn last_bytes() -> Result<(), Failed> {
    for sim in [Sim::new(22 * MIB), Sim::new(22 * MIB).without_virtual_memory()] {
        let device = device(sim, "policy:compact")?;
        let buffers = [20, 2].map(|mib| device.allocate(mib * MIB, device.default_stream()));
        assert_eq!(device.backend().used(), 22 * MIB);
        assert!(buffers.iter().all(Result::is_ok));
    }
    // No page is completely free: the end of one and the start of another are combined.
    let device = device(Sim::new(40 * MIB), "policy:compact")?;
    let allocate = |mib| device.allocate(mib * MIB, device.default_stream());
    let mut buffers = (0..40).map(|_| allocate(1)).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(device.backend().used(), 40 * MIB);
    drop([buffers.remove(4), buffers.remove(1)]);
    assert!(allocate(2).is_ok());
    Ok(())
}

fn largest() -> Result<(), Failed> {
    let plain = || Sim::new(20 * MIB).without_virtual_memory().with_largest_allocation(16 * MIB);
    for (sim, settings, largest) in [
        (plain(), "", 16 * MIB),
        (plain(), "policy:compact", 16 * MIB),
        (Sim::new(16 * MIB), "policy:compact", 16 * MIB),
    ] {
        let device = device(sim, settings)?;
        let stream = device.default_stream();
        let held = Arc::new(Mutex::new(Some(device.allocate(12 * MIB, stream)?)));
        let asked = Arc::clone(&held);
        device.allocator().add_free_memory_callback(move || asked.lock().is_ok_and(|mut held| held.take().is_some()));
        let refused = device.allocate(largest + 1, stream);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{settings}: {refused:?}");
        assert!(held.lock().is_ok_and(|held| held.is_some()), "{settings}: it would not help");
        drop(device.allocate(largest, stream)?);
        assert!(held.lock().is_ok_and(|held| held.is_none()), "{settings}: it helps");
    }
    Ok(())
}

fn helping_pools() -> Result<(), Failed> {
    let device = device(Sim::new(40 * MIB), "")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let pool = MemPool::new(device, MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() })?;
    let guard = pool.use_pool();
    let inside = device.allocate(24 * MIB, stream)?.ptr();
    drop(guard);
    for helps in [true, false, true] {
        allocator.set_pool_use_on_oom(pool.id(), helps)?;
        match device.allocate(24 * MIB, stream) {
            Ok(buffer) => assert_eq!((helps, buffer.ptr()), (true, inside)),
            Err(Error::OutOfMemory(report)) => assert_eq!((helps, report.cause), (false, OutOfMemoryCause::Device)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn gone_pools() -> Result<(), Failed> {
    for (settings, retries) in [("", 1), ("policy:compact", 0)] {
        let device = device(Sim::new(40 * MIB), settings)?;
        let (allocator, stream, pool) = (device.allocator(), device.default_stream(), MemPoolId::next_user());
        allocator.retain_pool(pool)?;
        allocator.set_pool_use_on_oom(pool, true)?;
        let route = allocator.begin_allocate_to_pool(pool, MemPoolRequests::ThisThread)?;
        drop((device.allocate(24 * MIB, stream)?, device.allocate(512, stream)?));
        allocator.end_allocate_to_pool(route);
        allocator.release_pool(pool)?;
        let _buffer = device.allocate(24 * MIB, stream)?;
        assert_eq!(allocator.statistics().num_alloc_retries, retries, "{settings}: the memory went back before");
        assert_eq!(allocator.pool_snapshot(MemPoolId::DEFAULT).segments.len(), 1);
    }
    Ok(())
}

fn garbage() -> Result<(), Failed> {
    let device = device(Sim::new(200 * MIB), "garbage_collection_threshold:0.5")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    allocator.set_memory_fraction(0.5)?;
    let [old, mut young, youngest] = [20, 30, 20].map(|mib| device.allocate(mib * MIB, stream));
    drop(old?);
    for _ in 0..10 {
        drop(young?);
        young = device.allocate(30 * MIB, stream);
    }
    drop((young?, youngest?));
    // All of that is 20 MiB over the threshold.
    let _large = device.allocate(36 * MIB, stream)?;
    let segments = allocator.snapshot().segments.into_iter().map(|segment| segment.total_size / MIB);
    assert_eq!(segments.collect::<Vec<_>>(), [30, 20, 36]);
    Ok(())
}

fn snapshot_of_a_pool() -> Result<(), Failed> {
    let device = device(Sim::new(40 * MIB), "")?;
    let allocator = device.allocator();
    let pool = MemPool::new(device, MemPoolOptions::default())?;
    allocator.record_history(Some(Recording { max_entries: 10, contexts: ContextsOf::All, capture: None }));
    pool.snapshot();
    allocator.snapshot();
    let entries = allocator.history().entries.into_iter();
    let taken =
        entries.filter(|entry| entry.action == HistoryAction::Trace(TraceAction::Snapshot)).map(|entry| entry.mem_pool);
    assert_eq!(taken.collect::<Vec<_>>(), [pool.id(), MemPoolId::DEFAULT]);
    Ok(())
}

fn streams_under_compact() -> Result<(), Failed> {
    for (sim, settings) in [
        (Sim::new(80 * MIB), "policy:compact"),
        (Sim::new(80 * MIB), "policy:compact,expandable_segments:True"),
        (Sim::new(80 * MIB).without_virtual_memory(), "policy:compact"),
    ] {
        let device = device(sim, settings)?;
        let (allocator, streams) = (device.allocator(), [device.stream(0)?, device.stream(0)?]);
        allocator.record_history(Some(Recording { max_entries: 10, contexts: ContextsOf::All, capture: None }));
        let buffers = streams.map(|stream| device.allocate(24 * MIB, stream));
        let expected = streams.map(|stream| stream.id());
        let segments = allocator.snapshot().segments.into_iter();
        assert_eq!(segments.map(|segment| segment.stream).collect::<Vec<_>>(), expected);
        drop(buffers);
        let entries = allocator.history().entries;
        for action in [TraceAction::Alloc, TraceAction::FreeRequested, TraceAction::FreeCompleted] {
            let of_action = entries.iter().filter(|entry| entry.action == HistoryAction::Trace(action));
            assert_eq!(of_action.map(|entry| entry.stream).collect::<Vec<_>>(), expected, "{action:?}");
        }
    }
    Ok(())
}

fn after_compact() -> Result<(), Failed> {
    let device = device(Sim::new(80 * MIB), "policy:compact")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    drop(device.allocate(24 * MIB, stream)?);
    allocator.set_config(allocator.config().updated("policy:pytorch")?);
    let _buffer = device.allocate(24 * MIB, stream)?;
    let segments = allocator.snapshot().segments.into_iter().map(|segment| segment.allocated_size / MIB);
    assert_eq!(segments.collect::<Vec<_>>(), [24, 0], "the memory of the other policy serves nothing");
    Ok(())
}

fn at_an_address() -> Result<(), Failed> {
    let device = device(Sim::new(80 * MIB).without_virtual_memory(), "")?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let bytes = NonZeroU64::new(20 * MIB).ok_or("no bytes")?;
    let [first, second] = [(); 2].map(|()| allocator.allocate(bytes, stream));
    let [first, second] = [first?, second?];
    let place = second.ptr();
    assert_eq!(place, first.ptr().offset(20 * MIB), "the device has its segments side by side");
    assert!(allocator.allocate_at(place, bytes, stream)?.is_none(), "it is in use");
    allocator.free(second)?;
    let again = allocator.allocate_at(place, bytes, stream)?.ok_or("it is free")?;
    assert_eq!(again.ptr(), place);
    allocator.free(again)?;
    Ok(allocator.free(first)?)
}

fn pools_in_turn() -> Result<(), Failed> {
    let device = device(Sim::new(80 * MIB), "policy:compact")?;
    for pausable in [false, true, false, true] {
        let pool = MemPool::new(device, MemPoolOptions { pausable, ..MemPoolOptions::default() })?;
        let guard = pool.use_pool();
        drop(device.allocate(20 * MIB, device.default_stream())?);
        drop(guard);
        let checkpoint = device.allocator().checkpoint_pool(pool.id());
        assert_eq!(checkpoint.is_ok(), pausable, "only then, its memory stays where it is");
        drop(pool);
        device.allocator().empty_cache()?;
    }
    Ok(())
}

fn unrecorded() -> Result<(), Failed> {
    for settings in ["", "max_split_size_mb:64"] {
        let device = device(Sim::new(40 * MIB), settings)?;
        assert_eq!(device.allocator().history().settings, device.allocator().config());
    }
    Ok(())
}

/// One call fails while free pages go back, each in turn.
fn partly_given_back() -> Result<(), Failed> {
    for settings in ["expandable_segments:True", "policy:compact"] {
        let mut failed = 0;
        for call in 1.. {
            let device = device(Faulty::new(Sim::new(256 * MIB)), settings)?;
            let (allocator, stream) = (device.allocator(), device.default_stream());
            let buffers = [(); 3].map(|()| device.allocate(60 * MIB, stream));
            let [before, free, behind] = buffers;
            let (before, behind) = (before?, behind?);
            drop(free?);
            device.backend().fail_call(call, DriverErrorKind::Other);
            let is_given_back = allocator.empty_cache().is_ok();
            let has_failed = device.backend().injected() > 0;
            device.backend().clear_failures();
            let reserved = allocator.statistics().reserved_bytes.all.current;
            let shown = allocator.snapshot().segments.iter().map(|segment| segment.total_size).sum::<u64>();
            let all = (device.backend().used(), device.backend().used() as i64);
            assert_eq!((shown, reserved), all, "{settings}, call {call}: the snapshot, the statistics, and the driver");
            let again = device.allocate(60 * MIB, stream)?;
            let more = device.backend().used() - 180 * MIB; // `compact` may make a chunk more
            assert!(more <= 20 * MIB, "{settings}, call {call}: what is left is used again, not {more} bytes more");
            drop((before, again, behind));
            allocator.empty_cache()?;
            assert_eq!((device.backend().used(), device.backend().misuses()), (0, 0), "{settings}, call {call}");
            if !has_failed {
                assert!(is_given_back);
                break;
            }
            failed += 1;
        }
        assert!(failed >= 3, "{settings}: only {failed} calls");
    }
    Ok(())
}

fn debug_texts() -> Result<(), Failed> {
    let [device, other] = [device(Sim::new(80 * MIB), "")?, device(Sim::new(80 * MIB), "")?];
    let (allocator, stream) = (device.allocator(), device.default_stream());
    allocator.record_history(Some(Recording { max_entries: 10, contexts: ContextsOf::All, capture: None }));
    let pool = MemPool::new(device, MemPoolOptions::default())?;
    let guard = pool.use_pool();
    let allocation = allocator.allocate(NonZeroU64::new(3000).ok_or("no bytes")?, stream)?;
    let (ptr, history, checkpoint) = (allocation.ptr(), allocator.history(), allocator.checkpoint_pool(pool.id())?);
    let allocated = format!("{allocation:?}");
    let refused = allocator.restore_pool(&checkpoint, Vec::new()).err().ok_or("an allocation is missing")?;
    let foreign = other.allocator().free(allocation).err().ok_or("it is of another device")?;
    let of_foreign = (format!("{foreign:?}"), format!("{:?}", foreign.error));
    allocator.free(foreign.allocation)?;
    let (pinned, host) = (device.allocate_host(1000)?, device.host_allocator());
    for (text, expected) in [
        (allocated, format!("Allocation {{ {ptr:?}, size: 3072, requested: 3000, {stream:?} }}")),
        of_foreign,
        (format!("{refused:?}"), format!("{:?}", refused.error)),
        (format!("{:?}", device.event(EventFlags::default())), "Event { sim:0, timing: false, native: None }".into()),
        (format!("{guard:?}"), format!("MemPoolGuard {{ {pool:?} }}")),
        (format!("{pinned:?}"), format!("PinnedBuffer {{ sim:0, 1000 bytes at {:?} }}", pinned.ptr())),
        (format!("{history:?}"), "History { 1 segments, 2 entries, 0 dropped }".into()),
    ] {
        assert_eq!(text, expected);
    }
    for (text, beginning) in [
        (format!("{:?}", history.entries[1]), "Trace(Alloc) { 0x100000000000, size: 3000, stream: 0, time: "),
        (format!("{host:?}"), "CachingHostAllocator { sim:0, active: Stat { current: 1024,"),
        (format!("{allocator:?}"), "CachingAllocator { sim:0, allocated: Stat { current: 0,"),
    ] {
        assert!(text.starts_with(beginning), "{text}");
    }
    Ok(())
}
