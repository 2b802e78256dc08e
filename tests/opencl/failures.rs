//! Failing calls and work: how they are reported, and that nothing is lost.

use std::time::Duration;

use accelerator_conformance::{Call, Faulty};
use accelerator_core::{Accelerator, DriverError, DriverErrorKind, Error, EventFlags, KIB, MIB, Result};
use accelerator_opencl::OpenCl;
use libtest_mimic::{Failed, Trial};

use crate::rig::{Outcome, UserEvent, around, becomes_true, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("failures::a_copy", copy),
        trial("failures::a_record", record),
        trial("failures::a_synchronize", synchronize),
        trial("failures::a_lost_device", lost),
        trial("failures::any_call_of_a_program", any_call),
        trial("failures::work_behind_a_failed_event", work_behind_a_failed_event),
        trial("failures::a_read_behind_a_failed_event", a_read_behind_a_failed_event),
        trial("failures::memory_used_by_work_that_failed", memory_used_by_work_that_failed),
    ]
}

type Device = &'static Accelerator<Faulty<OpenCl>>;

fn faulty() -> Result<Device, Failed> {
    around(Faulty::new(OpenCl::with_capacity(0, None)?))
}

/// Checks that the error is the injected failure.
fn check_injected<T: std::fmt::Debug>(result: Result<T>, call: Call, kind: DriverErrorKind) {
    let error = result.unwrap_err();
    let Error::Driver { device, source } = &error else { unreachable!("{error:?}") };
    assert_eq!((device.kind.name(), source.call, source.kind), ("opencl", call.name(), kind));
    assert!(error.to_string().starts_with(&format!("opencl:0: {} was refused: injected", call.name())), "{error}");
}

fn copy() -> Outcome {
    let device = faulty()?;
    let (driver, stream) = (device.backend(), device.stream(0)?);
    let mut buffer = device.allocate(5_000, stream)?;
    let mut other = device.allocate(5_000, stream)?;
    buffer.fill(1, stream)?;
    other.fill(2, stream)?;
    let mut bytes = vec![3; 5_000];
    for kind in [DriverErrorKind::Other, DriverErrorKind::OutOfMemory, DriverErrorKind::InvalidArgument] {
        driver.fail_next(Call::Copy, kind);
        check_injected(buffer.write(0, &bytes, stream), Call::Copy, kind);
        driver.fail_next(Call::Copy, kind);
        check_injected(buffer.copy_from(&other, stream), Call::Copy, kind);
        driver.fail_next(Call::Copy, kind);
        check_injected(buffer.read(0, &mut bytes, stream), Call::Copy, kind);
        driver.fail_next(Call::Fill, kind);
        check_injected(buffer.fill(4, stream), Call::Fill, kind);
        assert_eq!(bytes, [3; 5_000]);
        assert_eq!(buffer.slice::<u8>()?.to_vec(stream)?, [1; 5_000]);
    }
    buffer.copy_from(&other, stream)?;
    assert_eq!(buffer.slice::<u8>()?.to_vec(stream)?, [2; 5_000]);
    drop((buffer, other));
    check_all_gone(device)
}

fn record() -> Outcome {
    const FAILURE: DriverErrorKind = DriverErrorKind::Other;
    let device = faulty()?;
    let (driver, default, side) = (device.backend(), device.default_stream(), device.stream(0)?);
    let event = device.event(EventFlags::TIMING);
    driver.fail_next(Call::Record, FAILURE);
    check_injected(event.record(side), Call::Record, FAILURE);
    assert!(event.is_complete()?, "never recorded");
    event.record(side)?;
    event.synchronize()?;

    // Dropping the buffer records an event of the allocator.
    let active = || device.allocator().statistics().active_bytes.all.current;
    let mut buffer = device.allocate(64 * KIB, default)?;
    buffer.fill(1, side)?;
    let at = buffer.ptr();
    driver.fail_next(Call::Record, FAILURE);
    drop(buffer);
    side.synchronize()?;
    assert_eq!((active(), driver.injected()), (64 << 10, 2), "kept, because it may still be in use");
    driver.fail_next(Call::Record, FAILURE);
    check_injected(device.allocator().empty_cache(), Call::Record, FAILURE);
    assert_eq!(active(), 64 << 10);
    device.allocator().empty_cache()?;
    assert_eq!(active(), 0);
    assert_ne!(device.allocate(64 * KIB, default)?.ptr(), at, "the segment was freed");
    check_all_gone(device)
}

fn synchronize() -> Outcome {
    const FAILURE: DriverErrorKind = DriverErrorKind::Other;
    let device = faulty()?;
    let (driver, stream) = (device.backend(), device.stream(0)?);
    let mut buffer = device.allocate(MIB, stream)?;
    let mut bytes = vec![0; 1 << 20];
    for round in 1..=10 {
        buffer.fill(round, stream)?;
        driver.fail_next(Call::Synchronize, FAILURE);
        check_injected(buffer.read(0, &mut bytes, stream), Call::Synchronize, FAILURE);
        assert!(bytes.iter().all(|byte| *byte == round), "the call has waited nevertheless");
        driver.fail_next(Call::Synchronize, FAILURE);
        check_injected(stream.synchronize(), Call::Synchronize, FAILURE);
        driver.fail_next(Call::Synchronize, FAILURE);
        check_injected(device.synchronize(), Call::Synchronize, FAILURE);
        stream.synchronize()?;
        assert!(stream.is_idle()?);
    }
    drop(buffer);
    check_all_gone(device)
}

fn lost() -> Outcome {
    const LOST: DriverErrorKind = DriverErrorKind::DeviceLost;
    let device = faulty()?;
    let (driver, default, side) = (device.backend(), device.default_stream(), device.stream(0)?);
    let mut buffers = [100, 64 * KIB, 3 * MIB, 30 * MIB].map(|len| device.allocate(len, default).unwrap());
    buffers.iter_mut().try_for_each(|buffer| buffer.fill(7, side))?;
    let event = device.event(EventFlags::default());
    event.record(side)?;

    driver.set_lost(true);
    check_injected(device.memory_info(), Call::MemoryInfo, LOST);
    check_injected(device.stream(0), Call::Stream, LOST);
    check_injected(device.allocate(50 * MIB, default), Call::Alloc, LOST);
    check_injected(buffers[0].fill(1, default), Call::Fill, LOST);
    check_injected(buffers[0].write(0, &[1], default), Call::IsCapturing, LOST); // asked before a copy
    check_injected(event.record(default), Call::Record, LOST);
    check_injected(event.wait(default), Call::Wait, LOST);
    check_injected(event.is_complete(), Call::IsComplete, LOST);
    check_injected(event.synchronize(), Call::WaitHost, LOST);
    check_injected(side.is_idle(), Call::IsIdle, LOST);
    check_injected(device.synchronize(), Call::Synchronize, LOST);
    drop(buffers);
    assert!(device.allocator().empty_cache().is_err());
    let statistics = device.allocator().statistics();
    let (allocated, active) = (statistics.allocated_bytes.all.current, statistics.active_bytes.all.current);
    assert!(allocated == 0 && active > (33 << 20), "freed, but kept as in use");

    driver.set_lost(false);
    let mut buffer = device.allocate(50 * MIB, default)?;
    buffer.write(0, &[8], default)?;
    drop(buffer);
    check_all_gone(device)?;
    assert_eq!((driver.live_allocations(), driver.misuses()), (0, 0));
    Ok(())
}

/// Runs a little of everything that programs do, on several streams.
fn program(device: Device) -> Result<()> {
    let (default, side) = (device.default_stream(), device.stream(0)?);
    let event = device.event(EventFlags::TIMING);
    let mut one = device.allocate(100 * KIB, default)?;
    let mut other = device.allocate(12 * MIB, side)?;
    one.write(0, &[1; 1_000], default)?;
    event.record(default)?;
    event.wait(side)?;
    other.fill(0, side)?;
    other.copy_from(&one, side)?;
    drop(one);
    let mut bytes = [0; 1_000];
    other.read(0, &mut bytes, side)?;
    assert_eq!(bytes, [1; 1_000]);
    drop(other);
    drop(device.allocate(100 * KIB, default)?);
    event.synchronize()?;
    let end = device.event(EventFlags::TIMING);
    end.record(side)?;
    end.synchronize()?;
    event.elapsed_time(&end)?;
    device.allocator().empty_cache()?;
    device.memory_info()?;
    device.synchronize()
}

fn any_call() -> Outcome {
    let device = faulty()?;
    let driver = device.backend();
    let mut told = Vec::new();
    for kind in [DriverErrorKind::Other, DriverErrorKind::DeviceLost] {
        for n in 1.. {
            let before = driver.injected();
            driver.fail_call(n, kind);
            let result = program(device);
            let failed = driver.injected() > before;
            driver.clear_failures();
            check_all_gone(device)?;
            match result {
                Ok(()) if !failed => break,
                // The allocator retries recording its own events, and a report omits the free memory.
                Ok(()) => {}
                Err(Error::Driver { source: DriverError { kind: found, call, .. }, .. }) => {
                    assert!(failed && found == kind, "call {n}: {found:?} of {call}");
                    told.push(call);
                }
                Err(error) => return Err(format!("call {n}: {error}").into()),
            }
            program(device)?; // the device works as before
        }
    }
    for call in [Call::Stream, Call::Copy, Call::Fill, Call::Record, Call::Wait, Call::Synchronize, Call::Alloc] {
        assert!(told.contains(&call.name()), "`{}` was not among {told:?}", call.name());
    }
    assert_eq!((driver.live_allocations(), driver.misuses()), (0, 0));
    Ok(())
}

/// The status with which a user event fails. The commands that wait for it keep their own events, because PoCL 3.1
/// aborts when it fails a command whose event has no other owner.
const FAILED: i32 = -7;

/// Drivers either fail work that waits for a failed event or run it. The barrier's status shows which.
fn work_behind_a_failed_event() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let mut buffer = device.allocate(MIB, stream)?;
    let event = device.event(EventFlags::default());
    let (held, barrier) = UserEvent::ahead_of(device.backend(), stream.native())?;
    event.record(stream)?;
    held.end(FAILED)?;
    let waited = event.synchronize();
    assert!(event.is_complete()?, "a failed event is complete");
    let told = stream.synchronize();
    if barrier.status()? == 0 {
        assert!(waited.is_ok() && told.is_ok(), "{waited:?} {told:?}");
    } else {
        for result in [waited, told] {
            let Err(Error::Driver { source, .. }) = result else { unreachable!("{result:?}") };
            assert!(source.code < 0 && source.call == "clEnqueueMarkerWithWaitList", "{source}");
        }
    }
    stream.synchronize()?; // the error is reported once
    event.wait(other)?;
    other.synchronize()?; // does not wait for the failed work

    // The failed stream and all others keep working.
    for stream in [stream, other] {
        buffer.fill(9, stream)?;
        event.record(stream)?;
        event.synchronize()?;
        assert!(event.is_complete()?);
        assert!(buffer.slice::<u8>()?.to_vec(stream)? == vec![9; 1 << 20]);
    }
    drop(buffer);
    check_all_gone(device)
}

/// A read returns the right data or an error.
fn a_read_behind_a_failed_event() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(MIB, stream)?;
    buffer.fill(7, stream)?;
    stream.synchronize()?;
    let (held, _barrier) = UserEvent::ahead_of(device.backend(), stream.native())?;
    let mut bytes = vec![0; 1 << 20];
    let read = std::thread::scope(|scope| {
        let reading = scope.spawn(|| buffer.read(0, &mut bytes, stream));
        std::thread::sleep(Duration::from_millis(20)); // so that it is already waiting
        held.end(FAILED)?;
        reading.join().map_err(|_| Failed::from("the reader panicked"))
    })?;
    match read {
        Ok(()) => assert!(bytes == vec![7; 1 << 20], "nothing was read, but no error was reported"),
        Err(Error::Driver { source, .. }) => assert_eq!(source.call, "clEnqueueReadBuffer", "{source}"),
        Err(error) => return Err(error.into()),
    }
    buffer.read(0, &mut bytes, stream)?;
    assert!(bytes == vec![7; 1 << 20]);
    drop(buffer);
    check_all_gone(device)
}

/// The allocator recovers memory used by failed work.
fn memory_used_by_work_that_failed() -> Outcome {
    let device = device()?;
    let (default, side) = (device.default_stream(), device.stream(0)?);
    for way in 0..2 {
        let mut buffer = device.allocate(MIB, default)?;
        let (held, _barrier) = UserEvent::ahead_of(device.backend(), side.native())?;
        buffer.fill(1, side)?;
        drop(buffer);
        let active = || device.allocator().statistics().active_bytes.all.current;
        assert_eq!(active(), 1 << 20);
        held.end(FAILED)?;
        if way == 0 {
            becomes_true(|| {
                drop(device.allocate(1, default)?);
                Ok(active() == 0)
            })?;
        } else {
            device.allocator().empty_cache()?;
            assert_eq!(active(), 0);
        }
        let _ = side.synchronize(); // an error on some drivers, as above
    }
    check_all_gone(device)
}
