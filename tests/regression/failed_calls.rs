//! What is left after a call to the driver fails.

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, ContextsOf, DriverErrorKind, Error, EventFlags, HistoryAction, MIB, Recording,
    SharingProblem,
};
use accelerator_host::Host;

fn device() -> &'static Accelerator<Faulty<Host>> {
    Accelerator::new(Faulty::new(Host::new(0, 100 * MIB)), 0, AllocatorConfig::default()).unwrap()
}

/// The driver then gave a time from a record that it had refused.
#[test]
fn an_event_whose_first_record_failed_was_not_recorded() {
    let device = device();
    let stream = device.default_stream();
    let [start, end] = [(); 2].map(|()| device.event(EventFlags::TIMING));
    device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    assert!(matches!(start.record(stream), Err(Error::Driver { .. })));
    end.record(stream).unwrap();
    end.synchronize().unwrap();
    let unknown = start.elapsed_time(&end);
    assert!(matches!(unknown, Err(Error::ElapsedTime("both events must be recorded first"))), "{unknown:?}");
    assert!(start.native().is_none() && start.is_complete().unwrap());
    start.record(stream).unwrap();
    start.synchronize().unwrap();
    assert!(start.elapsed_time(&end).unwrap() <= 0.0);
}

/// The error of the copy that was over is reported once, so it was lost.
#[test]
fn a_wait_for_pinned_memory_that_fails_twice_reports_the_copy_that_failed() {
    const LEN: u64 = 1024;
    let device = device();
    let [late, other] = [(); 2].map(|()| device.stream(0).unwrap());
    let mut pinned = device.allocate_host(LEN).unwrap();
    let mut buffers = [late, other].map(|stream| device.allocate(LEN, stream).unwrap());
    device.backend().hold(late.native());
    for (buffer, stream) in buffers.iter_mut().zip([late, other]) {
        buffer.copy_from_pinned(0, &pinned, 0..LEN, stream).unwrap();
    }
    other.synchronize().unwrap();
    for kind in [DriverErrorKind::Other, DriverErrorKind::InvalidArgument] {
        device.backend().fail_next(Call::WaitHost, kind);
    }
    let failed = pinned.bytes_mut().map(drop).unwrap_err();
    assert!(matches!(&failed, Error::Driver { source, .. } if source.kind == DriverErrorKind::Other), "{failed}");
    assert_eq!(device.backend().injected(), 2);
    pinned.bytes_mut().unwrap().fill(1);
}

/// A mutant took a copy for over when the wait for it failed. No test saw it.
#[test]
fn pinned_memory_is_waited_for_again_after_a_wait_that_failed() {
    let device = device();
    let stream = device.stream(0).unwrap();
    let mut pinned = device.allocate_host(MIB).unwrap();
    let mut buffer = device.allocate(MIB, stream).unwrap();
    device.backend().hold(stream.native());
    buffer.copy_from_pinned(0, &pinned, 0..MIB, stream).unwrap();
    for _ in 0..2 {
        device.backend().fail_next(Call::WaitHost, DriverErrorKind::Other);
        pinned.bytes_mut().map(drop).unwrap_err();
    }
    pinned.bytes_mut().unwrap().fill(1);
}

/// A mutant took that for any failure of the driver. No test saw it.
#[test]
fn memory_that_the_driver_does_not_export_cannot_be_shared() {
    for kind in [DriverErrorKind::Unsupported, DriverErrorKind::Other] {
        let device = device();
        let mut buffer = device.allocate(MIB, device.default_stream()).unwrap();
        device.backend().fail_next(Call::Export, kind);
        let refused = buffer.share().map(drop).unwrap_err();
        let is_unsupported = matches!(refused, Error::Sharing { problem: SharingProblem::Unsupported(_), .. });
        assert_eq!(is_unsupported, kind == DriverErrorKind::Unsupported, "{refused}");
        buffer.share().unwrap();
    }
}

/// A mutant counted them. No test saw it.
#[test]
fn pages_that_the_driver_keeps_do_not_count_as_given_back() {
    let config = AllocatorConfig::default().updated("expandable_segments:True").unwrap();
    let device = Accelerator::new(Faulty::new(Sim::new(100 * MIB)), 0, config).unwrap();
    let allocator = device.allocator();
    drop(device.allocate(MIB, device.default_stream()).unwrap());
    device.backend().fail_next(Call::Unmap, DriverErrorKind::Other);
    for given_back in [0, 1] {
        assert_eq!(allocator.empty_cache().is_ok(), given_back == 1);
        assert_eq!(
            (device.backend().used(), allocator.statistics().num_device_free),
            (2 * MIB * (1 - given_back), given_back as i64)
        );
    }
}

/// Other failures are no lack of memory. A mutant took them for one, and no test saw it.
#[test]
fn the_history_tells_of_a_refusal_only_where_memory_is_missing() {
    for (kind, refusals) in [(DriverErrorKind::OutOfMemory, 1), (DriverErrorKind::Other, 0)] {
        let device = device();
        let allocator = device.allocator();
        allocator.record_history(Some(Recording { max_entries: 100, contexts: ContextsOf::All, capture: None }));
        device.backend().fail_next(Call::Alloc, kind);
        let allocated = device.allocate(MIB, device.default_stream());
        assert_eq!(allocated.is_ok(), kind == DriverErrorKind::OutOfMemory, "memory is asked for again");
        let entries = allocator.history().entries;
        let refused = entries.iter().filter(|entry| entry.action == HistoryAction::Refused);
        assert_eq!(refused.count(), refusals, "{kind:?}: {entries:?}");
    }
}
