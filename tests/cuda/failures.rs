//! Out of memory, lost devices, and their aftermath.
#![allow(unsafe_code)] // invalid accesses lose the device

use std::env;

use accelerator_core::{Backend, DriverErrorKind, Error, EventFlags, GIB, MIB, MemoryHandle, StreamKind};
use accelerator_cuda::Cuda;
use libtest_mimic::{Failed, Trial};

use crate::programs::process::{self, VIOLATES};
use crate::programs::{endings, failures};
use crate::rig::{self, Outcome, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("failures::while_a_thread_unwinds", &[], endings::dropped_while_a_thread_unwinds::<Cuda>),
        trial("failures::while_threads_end", &[], endings::threads_that_end_with_memory::<Cuda>),
        trial("failures::exit_with_work_queued", &[], endings::exit_with_work_queued::<Cuda>),
        trial("failures::out_of_memory", &[("CUDA_SIM_MEMORY", "1G")], out_of_memory),
        trial("failures::the_ladder_frees_the_cache", &[("CUDA_SIM_MEMORY", "1G")], ladder),
        trial("failures::out_of_host_memory", &[("CUDA_SIM_HOST_MEMORY", "64M")], failures::out_of_host_memory::<Cuda>),
        trial("failures::lost_device", &[(VIOLATES, "1")], lost_device),
        trial("failures::another_device_stays_usable", &[(VIOLATES, "1"), ("CUDA_SIM_DEVICES", "2")], another),
        trial("failures::a_lost_peer_loses_no_other_device", &[(VIOLATES, "1"), ("CUDA_SIM_DEVICES", "2")], lost_peer),
        trial("failures::a_peer_lost_while_memory_is_mapped", &[("CUDA_SIM_DEVICES", "2")], lost_while_mapping),
        trial("failures::destroying_is_repeated", &[], destroying),
        trial("failures::a_mapping_that_could_not_be_undone_is_undone_later", &[], mapping_left),
        trial("failures::code_without_a_name", &[], || failures::code_without_a_name::<Cuda>("cuMemsetD8Async")),
        trial("failures::a_wait_that_fails_has_waited", &[], failed_wait),
        trial("failures::a_copy_that_nobody_knows_of", &[], unknown_copy),
        trial("failures::an_import_stays_if_its_work_cannot_be_waited_for", &[], import_not_waited_for),
    ]
}

/// The pages could not be made accessible, and not be unmapped. Each later request for these addresses failed.
fn mapping_left() -> Outcome {
    let device = device()?;
    let config = device.allocator().config().updated("expandable_segments:True")?;
    device.allocator().set_config(config);
    for undone in [2, 0] {
        rig::fail("cuMemSetAccess", 1, INVALID_VALUE);
        (1..=undone).for_each(|nth| rig::fail("cuMemUnmap", nth, INVALID_VALUE));
        assert!(device.allocate(MIB, device.default_stream()).is_err());
        let mut buffer = device.allocate(MIB, device.default_stream())?;
        buffer.fill(1, device.default_stream())?;
        drop(buffer);
        device.synchronize()?;
        device.allocator().empty_cache()?;
    }
    check_all_gone(device)
}

const INVALID_VALUE: i32 = 1;

fn out_of_memory() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    let error = device.allocate(2 * GIB, stream).unwrap_err();
    let Error::OutOfMemory(told) = &error else { return Err(format!("{error:?}").into()) };
    assert!(error.to_string().contains("cuda:0"), "{error}");
    assert_eq!(told.requested, 2 * GIB);
    assert_eq!(device.allocator().statistics().num_ooms, 1);
    let _ = device.allocate(GIB / 2, stream)?; // the device is still usable
    check_all_gone(device)
}

fn ladder() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    drop(device.allocate(600 * MIB, stream)?); // stays in the cache
    let buffer = device.allocate(700 * MIB, stream)?;
    assert_eq!(device.allocator().statistics().num_alloc_retries, 1);
    drop(buffer);
    check_all_gone(device)
}

/// Makes the device access freed memory.
fn lose(device: &Cuda, stream: &<Cuda as Backend>::Stream) -> Result<(), Failed> {
    let len = std::num::NonZeroU64::new(MIB).unwrap();
    let freed = device.alloc(len)?;
    // SAFETY: It was just allocated, and no work uses it.
    unsafe { device.dealloc(freed, len) };
    // SAFETY: The memory is not valid, which is intended: this driver checks.
    let submitted = unsafe { device.fill(freed, 0, len, stream) };
    let _ = submitted; // reported now or later
    Ok(())
}

fn lost_device() -> Outcome {
    let device = device()?;
    let (stream, side) = (device.default_stream(), device.stream(0)?);
    let mut buffer = device.allocate(5 * MIB, stream)?;
    let mut pinned = device.allocate_host(1000)?;
    buffer.copy_to_pinned(0..1000, &mut pinned, 0, side)?;
    let event = device.event(accelerator_core::EventFlags::default());
    event.record(side)?;
    lose(device.backend(), stream.native())?;

    let error = device.synchronize().unwrap_err();
    let Error::Driver { source, .. } = &error else { return Err(format!("{error:?}").into()) };
    assert_eq!((source.kind, source.code), (DriverErrorKind::DeviceLost, 700));
    assert!(source.call.starts_with("cu") && source.name == "CUDA_ERROR_ILLEGAL_ADDRESS", "{error}");

    let calls = rig::calls();
    let told = |error: Error| matches!(error, Error::Driver { source: again, .. } if again == *source);
    assert!(told(buffer.fill(0, stream).unwrap_err()));
    assert!(told(device.memory_info().unwrap_err()));
    assert!(told(stream.synchronize().unwrap_err()));
    assert!(told(device.allocate(100 * MIB, stream).unwrap_err()));
    assert!(told(device.allocate_host(100 * MIB).unwrap_err()));
    assert!(event.is_complete()?, "a lost device does no more work");
    drop((buffer, pinned, event));
    let _ = device.allocator().empty_cache();
    let _ = device.host_allocator().empty_cache();
    assert_eq!(rig::calls(), calls, "later calls fail at once: the driver is not called again");
    Ok(())
}

fn another() -> Outcome {
    let (first, second) = (rig::device_numbered(0)?, rig::device_numbered(1)?);
    lose(first.backend(), first.default_stream().native())?;
    assert!(first.synchronize().is_err());
    let mut buffer = second.allocate(100, second.default_stream())?;
    buffer.write(0, &[7; 100], second.default_stream())?;
    second.synchronize()?;
    Ok(())
}

fn check_usable(device: rig::Device) -> Outcome {
    let stream = device.default_stream();
    let mut buffer = device.allocate(MIB, stream)?;
    buffer.write(0, &[7; 100], stream)?;
    Ok(device.synchronize()?)
}

/// Only the driver knows that the peer is lost: a device that is opened again has not been told.
fn lost_peer() -> Outcome {
    let (here, [there, again]) = (rig::device_numbered(0)?, [rig::device_numbered(1)?, rig::device_numbered(1)?]);
    lose(there.backend(), there.default_stream().native())?;
    assert!(there.synchronize().is_err());
    for peer in [again, there] {
        let refused = here.backend().enable_peer_access(peer.backend());
        assert_eq!(refused.map_err(|error| error.kind), Err(DriverErrorKind::DeviceLost));
        check_usable(here)?;
    }
    Ok(())
}

/// A new mapping is opened for the peers, too.
fn lost_while_mapping() -> Outcome {
    let (here, there) = (rig::device_numbered(0)?, rig::device_numbered(1)?);
    here.allocator().set_config(here.allocator().config().updated("expandable_segments:True")?);
    assert!(there.backend().enable_peer_access(here.backend())?);
    rig::fail("cuMemSetAccess", 1, 709); // the peer's context is destroyed
    assert!(here.allocate(MIB, here.default_stream()).is_err());
    check_usable(here)?;
    check_all_gone(here)
}

/// A driver that refuses to destroy something may do so when it is asked again.
fn destroying() -> Outcome {
    let device = device()?;
    let made = || [rig::live_streams(), rig::live_events()];
    let before = made();
    let backend = device.backend();
    let (stream, event) = (backend.stream(StreamKind::Side { priority: 0 })?, backend.event(EventFlags::default())?);
    assert_eq!(made(), before.map(|count| count + 1));
    ["cuStreamDestroy_v2", "cuEventDestroy_v2"].iter().for_each(|call| rig::fail(call, 1, 1));
    drop((stream, event));
    assert_eq!((made(), rig::clear_faults()), (before, 0));
    Ok(())
}

fn failed_wait() -> Outcome {
    // The question whether the stream captures looks at the context, then the copy does, and then the wait. Only the
    // wait makes the other calls.
    failures::failed_wait::<Cuda>(&[
        ("cuStreamSynchronize", 1..=1),
        ("cuCtxGetCurrent", 3..=3),
        ("cuThreadExchangeStreamCaptureMode", 1..=1),
    ])
}

/// The end of a copy can neither be recorded nor waited for. Its memory must then not be reused early.
fn unknown_copy() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(1000, stream)?;
    buffer.fill(7, stream)?;
    let mut pinned = device.allocate_host(1000)?;
    rig::hold(stream.native().native().expose_provenance());
    rig::fail("cuEventRecord", 1, 1);
    (1..10).for_each(|n| rig::fail("cuStreamSynchronize", n, 1));
    assert!(buffer.copy_to_pinned(0..1000, &mut pinned, 0, stream).is_err());
    rig::clear_faults();
    let taken = pinned.ptr();
    drop(pinned);
    let mut other = device.allocate_host(1000)?;
    assert_ne!(other.ptr(), taken, "the copy is still under way");
    other.bytes_mut()?.fill(1);
    stream.synchronize()?;
    assert!(other.bytes()?.iter().all(|byte| *byte == 1));
    drop((buffer, other));
    check_all_gone(device)
}

/// Another process imports memory of this one.
fn import_not_waited_for() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let Ok(shared) = env::var(SHARED) else {
        let mut buffer = device.allocate(MIB, stream)?;
        let bytes = buffer.share()?.as_bytes().iter().map(u8::to_string).collect::<Vec<_>>();
        return process::again(&[(SHARED, &bytes.join(" "))]);
    };
    let bytes = shared.split(' ').map(str::parse).collect::<Result<Vec<u8>, _>>()?;
    let import = || -> Result<_, Failed> {
        // SAFETY: The process that shares the memory does not use it.
        Ok(unsafe { device.import(&MemoryHandle::from_bytes(&bytes), stream) }?)
    };
    let mut imported = import()?;
    imported.fill(1, stream)?;
    // It is tried twice, each time with four waits and a query.
    (1..=8).for_each(|nth| rig::fail("cuStreamSynchronize", nth, INVALID_VALUE));
    (1..=2).for_each(|nth| rig::fail("cuStreamQuery", nth, INVALID_VALUE));
    drop(imported);
    assert_eq!((rig::clear_faults(), rig::calls_of("cuIpcCloseMemHandle")), (0, 0));
    // Memory is mapped once for all imports of it, so this one ends both.
    drop(import()?);
    assert_eq!(rig::calls_of("cuIpcCloseMemHandle"), 1);
    Ok(())
}

/// Set to the handle of memory that the other process shares.
const SHARED: &str = "ACCELERATOR_SHARED";
