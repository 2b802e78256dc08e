//! Failing calls and their aftermath.
#![allow(unsafe_code)] // allocates from the backend directly

use std::num::NonZeroU64;

use accelerator_core::{Backend, DriverError, DriverErrorKind, EventFlags, KIB, StreamKind};
use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::control::{self, OUT_OF_MEMORY, REFUSED};
use crate::lost::told;
use crate::programs::{endings, failures};
use crate::raw;
use crate::rig::{Outcome, check_all_gone, device, simulated, unchecked};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        unchecked("failures::while_a_thread_unwinds", &[], endings::dropped_while_a_thread_unwinds::<Xpu>),
        unchecked("failures::while_threads_end", &[], endings::threads_that_end_with_memory::<Xpu>),
        unchecked("failures::exit_with_work_queued", &[], endings::exit_with_work_queued::<Xpu>),
        simulated("failures::which_codes", &[], which_codes),
        simulated("failures::code_without_a_name", &[], || {
            failures::code_without_a_name::<Xpu>("zeCommandListAppendMemoryFill")
        }),
        simulated("failures::a_wait_that_fails_has_waited", &[], || {
            let call = "zeEventHostSynchronize";
            failures::failed_wait::<Xpu>(&[(call, 1..=1), (call, 1..=2), (call, 1..=10)])
        }),
        simulated("failures::a_wait_without_memory_for_events", &[], wait_without_events),
        simulated("failures::a_copy_whose_end_cannot_be_recorded", &[], unrecorded_copy),
        simulated("failures::commands_of_ones_own_lose_nothing", &[], own_commands),
        simulated("failures::memory_of_a_stream_that_cannot_be_waited_for", &[], unwaited_stream),
        simulated("failures::memory_while_nobody_can_wait", &[], unwaited_memory),
    ]
}

/// Which errors of a single call lose the device, and the kinds of the others.
fn which_codes() -> Outcome {
    use DriverErrorKind as Kind;
    use accelerator_xpu::sys::ze_result_t as Code;

    let codes = [
        (Code::ZE_RESULT_ERROR_DEVICE_LOST, Kind::DeviceLost),
        (Code::ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, Kind::DeviceLost),
        (Code::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, Kind::OutOfMemory),
        (Code::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, Kind::OutOfMemory),
        (Code::ZE_RESULT_ERROR_UNSUPPORTED_SIZE, Kind::AllocationTooLarge),
        (Code::ZE_RESULT_ERROR_UNSUPPORTED_VERSION, Kind::Unsupported),
        (Code::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, Kind::Unsupported),
        (Code::ZE_RESULT_ERROR_INVALID_ARGUMENT, Kind::InvalidArgument),
        (Code::ZE_RESULT_ERROR_INVALID_NULL_HANDLE, Kind::InvalidArgument),
        (Code::ZE_RESULT_ERROR_INVALID_SIZE, Kind::InvalidArgument),
        (Code::ZE_RESULT_ERROR_NOT_AVAILABLE, Kind::Other),
        (Code::ZE_RESULT_ERROR_UNKNOWN, Kind::Other),
    ];
    for (code, kind) in codes {
        let device = device()?; // opened again
        let stream = device.default_stream();
        let mut buffer = device.allocate(100, stream)?;
        control::fail("zeCommandListAppendMemoryFill", 1, code);
        let error = told(buffer.fill(0, stream).unwrap_err())?;
        assert_eq!((error.kind, error.code, Some(error.name)), (kind, i64::from(code.0), code.name()));
        let is_usable = buffer.fill(0, stream).is_ok();
        assert_eq!(is_usable, kind != Kind::DeviceLost, "{error}");
        drop(buffer);
        control::reset_lost();
    }
    Ok(())
}

/// All events are in use, and there is no memory for more. A wait must still take effect.
fn wait_without_events() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(1000, stream)?;
    buffer.fill(7, stream)?;
    control::hold(stream.native().native());
    let events: Vec<_> = (0..200).map(|_| device.event(EventFlags::default())).collect();
    control::fail("zeEventPoolCreate", 0, OUT_OF_MEMORY);
    let mut recorded = 0;
    for event in &events {
        buffer.fill(7, stream)?;
        match event.record(stream).map_err(told) {
            Ok(()) => recorded += 1,
            Err(error) => {
                let error = error?;
                assert_eq!((error.kind, error.call), (DriverErrorKind::OutOfMemory, "zeEventPoolCreate"));
                break;
            }
        }
    }
    assert!((10..100).contains(&recorded), "{recorded}");
    for _ in 0..3 {
        let mut bytes = [0; 1000];
        control::hold(stream.native().native());
        let _ = buffer.read(0, &mut bytes, stream); // may report that it had to wait in another way, but has waited
        assert_eq!(bytes, [7; 1000], "the copy is still under way");
    }
    assert!(control::clear_faults() > 0);
    drop((buffer, events));
    check_all_gone(device)
}

/// If the end of a copy cannot be recorded, the copy is over before its memory is reused.
fn unrecorded_copy() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(1000, stream)?;
    buffer.fill(7, stream)?;
    stream.synchronize()?;
    let mut pinned = device.allocate_host(1000)?;
    control::hold(stream.native().native());
    // The copy itself needs no barrier, because the stream was waited for.
    (1..=20).for_each(|n| control::fail("zeCommandListAppendBarrier", n, REFUSED));
    assert!(buffer.copy_to_pinned(0..1000, &mut pinned, 0, stream).is_err());
    control::clear_faults();
    drop(pinned);
    let mut other = device.allocate_host(1000)?;
    other.bytes_mut()?.fill(1);
    stream.synchronize()?;
    assert!(other.bytes()?.iter().all(|byte| *byte == 1), "the copy was still under way");
    drop((buffer, other));
    check_all_gone(device)
}

/// Errors of a program's own commands may concern other devices, or nothing at all.
fn own_commands() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(64, stream)?;
    for kind in [DriverErrorKind::DeviceLost, DriverErrorKind::Other] {
        let said = DriverError::new(kind, "commands", 1, "of one's own");
        assert_eq!(stream.native().submit(|_| Err(said)), Err(said));
        buffer.fill(3, stream)?;
        let mut read = [0; 64];
        buffer.read(0, &mut read, stream)?;
        assert_eq!(read, [3; 64]);
    }
    drop(buffer);
    check_all_gone(device)
}

const LEN: NonZeroU64 = NonZeroU64::new(64 * KIB).unwrap();

/// A dropped stream whose work cannot be waited for stays alive, and keeps memory from being freed meanwhile.
fn unwaited_stream() -> Outcome {
    let device = Xpu::open(0)?;
    let (at, stream) = (device.alloc(LEN)?, device.stream(StreamKind::Default)?);
    let list = stream.native();
    control::hold(list);
    // SAFETY: The memory is that long, and freed later.
    unsafe { device.fill(at, 1, LEN, &stream) }?;
    control::fail("zeCommandListAppendBarrier", 0, REFUSED);
    drop(stream);
    assert_eq!(control::live_lists(), 1, "the list was destroyed with its work");
    // SAFETY: Allocated above, and no more work on it is submitted.
    unsafe { device.dealloc(at, LEN) };
    assert_eq!(control::live_allocations(), 1, "the memory was freed before its work was done");
    control::clear_faults();
    let other = device.alloc(LEN)?;
    // SAFETY: Just allocated. The wait for the work succeeds now.
    unsafe { device.dealloc(other, LEN) };
    assert_eq!(control::live_allocations(), 1);
    raw::free(&device, at.native())?;
    drop(device);
    assert_eq!((control::live_contexts(), control::live_lists()), (1, 1), "the stream keeps what it needs");
    Ok(())
}

/// The memory is leaked rather than reused while work still accesses it.
fn unwaited_memory() -> Outcome {
    let device = Xpu::open(0)?;
    let (at, stream) = (device.alloc(LEN)?, device.stream(StreamKind::Default)?);
    let free = device.memory_info()?.free;
    control::hold(stream.native());
    // SAFETY: The memory is that long, and freed later.
    unsafe { device.fill(at, 1, LEN, &stream) }?;
    control::fail("zeEventHostSynchronize", 0, REFUSED);
    // SAFETY: Allocated above, and no more work on it is submitted.
    unsafe { device.dealloc(at, LEN) };
    control::clear_faults();
    assert_eq!((control::live_allocations(), device.memory_info()?.free), (1, free));
    device.synchronize(&stream)?;
    raw::free(&device, at.native())?;
    Ok(())
}
