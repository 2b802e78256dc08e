//! Bugs that a review of the policy `compact` found.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Call, Controls, Faulty, Gate, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, DevicePtr, DriverErrorKind, Error, GIB, MIB, MemPool, MemPoolOptions,
    OutOfMemoryCause,
};

fn device<B: Backend>(backend: B) -> &'static Accelerator<B> {
    Accelerator::new(backend, 0, AllocatorConfig::default().updated("policy:compact").unwrap()).unwrap()
}

/// Chunks of several streams are merged before they are released. Free memory after them may still be in use.
#[test]
fn memory_in_use_is_not_released_with_merged_chunks() {
    let device = device(Faulty::new(Sim::new(GIB)));
    let [first, second] = [device.default_stream(), device.stream(0).unwrap()];
    let [one, two, three] = [(); 3].map(|()| device.allocate(20 * MIB, first).unwrap());
    let place = three.ptr();
    drop(two);
    drop(device.allocate(20 * MIB, second).unwrap()); // memory that the first stream freed
    drop(one);
    drop(device.allocate(512, second).unwrap()); // a miss, which notices that all of that work is over
    device.backend().set_capturing(first.native(), true);
    drop(three);
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 20 * MIB, "captured work may use it");
    let elsewhere = device.allocate(20 * MIB, second).unwrap();
    assert_ne!(elsewhere.ptr(), place);
    drop(elsewhere);
    device.backend().set_capturing(first.native(), false);
    device.allocator().empty_cache().unwrap();
    assert_eq!((device.backend().used(), device.backend().misuses()), (0, 0));
}

/// Without virtual memory, a request may use what a large request left over in its own segment, before it fails.
#[test]
fn a_request_that_would_fail_takes_the_rest_of_another_requests_segment() {
    let device = device(Sim::new(40 * MIB).without_virtual_memory());
    let stream = device.default_stream();
    drop(device.allocate(32 * MIB, stream).unwrap());
    let large = device.allocate(32 * MIB - MIB / 2, stream).unwrap();
    assert_eq!(device.allocator().statistics().reserved_bytes.all.current, 32 * MIB as i64);
    let small: Vec<_> = (0..16).map(|_| device.allocate(MIB / 2, stream).unwrap()).collect();
    assert_eq!(device.backend().used(), 40 * MIB);
    let last = device.allocate(MIB / 2, stream).unwrap();
    assert_eq!(last.ptr().unwrap().trace_address(), large.ptr().unwrap().trace_address() + large.len());
    device.allocate(512 * 1024, stream).unwrap_err();
    drop((small, large, last));
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

/// The call returned without an error, and without giving anything back.
#[test]
fn emptying_the_cache_reports_an_event_that_cannot_be_recorded() {
    let device = device(Faulty::new(Sim::new(GIB)));
    drop(device.allocate(20 * MIB, device.default_stream()).unwrap());
    device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    assert!(matches!(device.allocator().empty_cache(), Err(Error::Driver { .. })));
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

/// A mutant went on with the next stream, and forgot the failure. No test saw it.
#[test]
fn emptying_the_cache_reports_a_wait_that_failed_for_one_of_two_streams() {
    let device = device(Faulty::new(Sim::new(GIB)));
    for stream in [(); 2].map(|()| device.stream(0).unwrap()) {
        let buffer = device.allocate(20 * MIB, stream).unwrap();
        device.backend().hold(stream.native());
        drop(buffer);
    }
    device.backend().fail_next(Call::WaitHost, DriverErrorKind::Other);
    assert!(matches!(device.allocator().empty_cache(), Err(Error::Driver { .. })));
    device.allocator().empty_cache().unwrap();
    assert_eq!(device.backend().used(), 0);
}

/// Memory was made in one address range after another, all too short for the request, until the device was full.
#[test]
fn a_request_longer_than_any_address_range_takes_no_memory() {
    let device = device(Sim::new(GIB).with_largest_reservation(80 * MIB));
    let (allocator, stream) = (device.allocator(), device.default_stream());
    drop(device.allocate(40 * MIB, stream).unwrap());
    let Err(Error::OutOfMemory(report)) = device.allocate(100 * MIB, stream) else { unreachable!("it does not fit") };
    assert_eq!(report.cause, OutOfMemoryCause::AddressSpace);
    assert_eq!(allocator.statistics().reserved_bytes.all.peak, 40 * MIB as i64);
    // A request that fits into a range, but not behind the memory in use there, gets a range of its own.
    let live = device.allocate(50 * MIB, stream).unwrap();
    let other = device.allocate(70 * MIB, stream).unwrap();
    assert_eq!(allocator.statistics().reserved_bytes.all.peak, 120 * MIB as i64);
    drop((live, other));
}

/// Another request, for which there was too little memory, had some pages and had not given them back yet.
#[test]
fn a_request_waits_for_the_pages_of_one_in_another_pool_that_lacks_others() {
    let device = device(Faulty::new(Sim::new(100 * MIB)));
    let (driver, stream) = (device.backend(), device.default_stream());
    let live = device.allocate(50 * MIB, stream).unwrap();
    let pools = [(); 2].map(|()| MemPool::new(device, MemPoolOptions::default()).unwrap());
    let reached = |gate: &Gate| assert!(gate.wait_reached(Duration::from_secs(10)));
    let allocate = |pool: usize, mib| {
        let _guard = pools[pool].use_pool();
        device.allocate(mib * MIB, stream)
    };
    let (done, is_done) = channel();
    thread::scope(|scope| {
        // The request finds no memory at first, in three attempts. It is held up before the next one.
        (0..3).for_each(|_| driver.fail_next(Call::Create, DriverErrorKind::OutOfMemory));
        let mut last = driver.gate(Call::MemoryInfo);
        scope.spawn(|| done.send(allocate(0, 40)));
        for _ in 0..3 {
            reached(&last);
            last = driver.gate(Call::MemoryInfo); // opens the one before
        }
        reached(&last);
        let other = driver.gate(Call::Destroy);
        let in_vain = scope.spawn(|| allocate(1, 60).map(drop));
        reached(&other);
        last.open();
        let early = is_done.recv_timeout(Duration::from_millis(200));
        other.open();
        in_vain.join().unwrap().unwrap_err();
        let served = early.or_else(|_| is_done.recv_timeout(Duration::from_secs(10)));
        drop(served.unwrap().unwrap());
    });
    drop(live);
}

/// A mutant waited on the device only for the stream that had freed last, and then on the host. No test saw it.
#[test]
fn a_request_waits_on_the_device_for_all_streams_that_freed_memory() {
    let device = device(Faulty::new(Sim::new(100 * MIB)));
    let [first, second, third] = [(); 3].map(|()| device.stream(0).unwrap());
    let freed = [first, second].map(|stream| device.allocate(50 * MIB, stream).unwrap());
    [first, second].iter().for_each(|stream| device.backend().hold(stream.native()));
    drop(freed);
    drop(device.allocate(100 * MIB, third).unwrap());
    let calls = device.backend().calls();
    assert_eq!((calls.of(Call::Wait), calls.of(Call::WaitHost)), (2, 0));
}

/// Ends of epochs were numbered beyond the last stream, which overflowed. So did the numbers of lists in a check.
#[test]
fn streams_that_are_too_many_to_share_memory_have_their_own() {
    const MOST: usize = 65_535;
    let device = device(Sim::new(4096 * GIB));
    let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
    let _guard = pool.use_pool();
    let freed_on = |stream| device.allocate(1, stream).unwrap().ptr();
    for _ in 0..MOST {
        freed_on(device.dedicated_stream(0).unwrap());
    }
    let segments = || pool.snapshot().segments.len();
    let shared = segments();
    let [one, other] = [(); 2].map(|()| device.dedicated_stream(0).unwrap());
    let places = [one, other].map(freed_on);
    assert_eq!(segments(), shared + 2);
    assert_ne!(places[0], places[1]);
    assert_eq!([one, other].map(freed_on), places);
    #[cfg(debug_assertions)]
    device.allocator().check();
}

/// A mutant used the addresses of memory that had gone back never again. No test saw it.
#[test]
fn addresses_at_the_end_of_a_range_are_used_again() {
    let device = device(Sim::new(GIB));
    let streams = [device.default_stream(), device.stream(0).unwrap()];
    let _live = streams.map(|stream| device.allocate(20 * MIB, stream).unwrap());
    for stream in streams {
        let places = [(); 3].map(|()| {
            device.allocator().empty_cache().unwrap();
            device.allocate(30 * MIB, stream).unwrap().ptr()
        });
        assert_eq!(places, [places[0]; 3]);
    }
}

/// Chunks could only be exchanged after a wait on the host, which would end the capture.
#[test]
fn a_captured_stream_waits_for_nothing_that_could_go_back() {
    let device = device(Faulty::new(Sim::new(100 * MIB).without_second_mappings()));
    let (driver, stream) = (device.backend(), device.default_stream());
    let [first, live] = [50, 20].map(|mib| device.allocate(mib * MIB, stream).unwrap());
    drop(first);
    driver.set_capturing(stream.native(), true);
    let refused = device.allocate(60 * MIB, stream).map(drop);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    assert_eq!(driver.calls().of(Call::WaitHost), 0);
    driver.set_capturing(stream.native(), false);
    drop(device.allocate(60 * MIB, stream).unwrap());
    drop(live);
}

/// A mutant released the addresses although memory was mapped there. No test saw it.
#[test]
fn a_second_mapping_that_is_neither_completed_nor_undone_keeps_its_addresses() {
    let mut kept = 0;
    for call in 1.. {
        let device = device(Faulty::new(Sim::new(100 * MIB)));
        let (driver, stream) = (device.backend(), device.default_stream());
        let [first, second, third, fourth] = [20, 20, 20, 40].map(|mib| device.allocate(mib * MIB, stream).unwrap());
        drop((first, third));
        driver.fail_call(call, DriverErrorKind::Other);
        driver.fail_next(Call::Unmap, DriverErrorKind::Other);
        let allocated = device.allocate(40 * MIB, stream);
        let injected = driver.injected();
        kept += u32::from(injected == 2);
        driver.clear_failures();
        drop((allocated, second, fourth));
        device.allocator().empty_cache().unwrap();
        assert_eq!((driver.used(), driver.misuses()), (0, 0), "without call {call}");
        if injected == 0 {
            break;
        }
    }
    assert!(kept > 10, "a mapping was to be undone, {kept} times");
}

/// A mutant asked the driver at each miss. No test saw it.
#[test]
fn the_driver_is_asked_for_its_free_memory_when_an_eighth_of_it_is_gone() {
    let device = device(Faulty::new(Sim::new(800 * MIB)));
    let (driver, stream) = (device.backend(), device.default_stream());
    let asked = || driver.calls().of(Call::MemoryInfo);
    let (before, mut buffers) = (asked(), Vec::new());
    // It is asked at the first growth, and when 100 MiB have been taken.
    for (mib, expected) in [(20, 1), (60, 1), (20, 1), (20, 2), (20, 2)] {
        buffers.push(device.allocate(mib * MIB, stream).unwrap());
        assert_eq!(asked() - before, expected, "{} buffers", buffers.len());
    }
}

#[test]
fn a_stream_that_is_alone_makes_no_events() {
    let device = device(Faulty::new(Sim::new(100 * MIB)));
    let stream = device.default_stream();
    for mib in [20, 30, 50, 80] {
        drop(device.allocate(mib * MIB, stream).unwrap());
    }
    assert_eq!(device.backend().calls().of(Call::Record), 0);
}

/// Mutants put the request elsewhere. No test saw it.
#[test]
fn whole_pages_begin_where_a_page_begins_if_the_device_has_little_room() {
    let device = device(Sim::new(60 * MIB));
    let stream = device.default_stream();
    let whole = device.allocate(20 * MIB, stream).unwrap();
    let start = whole.ptr();
    drop(whole);
    let before = device.allocate(3 * MIB / 2, stream).unwrap();
    let pages = device.allocate(4 * MIB, stream).unwrap();
    assert_eq!([before.ptr(), pages.ptr()], [start, start.map(|start| start.offset(2 * MIB))]);
}
