//! Lost devices and their aftermath.

use std::num::NonZeroU64;

use accelerator_core::{Backend, DriverError, DriverErrorKind, Error, EventFlags, KIB, MIB, StreamKind};
use accelerator_xpu::Xpu;
use libtest_mimic::{Failed, Trial};

use crate::control::{self, LOST};
use crate::programs::process::VIOLATES;
use crate::raw;
use crate::rig::{Device, Outcome, device, device_numbered, simulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("lost::at_a_call", &[], at_a_call),
        simulated("lost::by_its_work", &[(VIOLATES, "1")], by_its_work),
        simulated("lost::another_device_stays_usable", &[("ZE_SIM_DEVICES", "2")], another),
        simulated("lost::dropped", &[("ZE_SIM_DEVICES", "2")], dropped),
    ]
}

pub(crate) fn told(error: Error) -> Result<DriverError, Failed> {
    match error {
        Error::Driver { source, .. } => Ok(source),
        other => Err(format!("{other:?}").into()),
    }
}

/// Every later call returns the error, and the driver is not called any more.
fn check_lost(device: Device, by: impl FnOnce() -> Result<Error, Failed>) -> Result<DriverError, Failed> {
    let (stream, side) = (device.default_stream(), device.stream(0)?);
    let mut buffer = device.allocate(5 * MIB, stream)?;
    let mut pinned = device.allocate_host(1000)?;
    buffer.fill(1, side)?;
    buffer.copy_to_pinned(0..1000, &mut pinned, 0, side)?;
    let event = device.event(EventFlags::default());
    let timed = [0; 2].map(|_| device.event(EventFlags::TIMING));
    for event in [&event, &timed[0], &timed[1]] {
        event.record(side)?;
    }
    let first = told(by()?)?;
    assert_eq!(first.kind, DriverErrorKind::DeviceLost);
    assert!(first.call.starts_with("ze") && first.name == "ZE_RESULT_ERROR_DEVICE_LOST", "{first}");

    let calls = control::calls();
    for error in [
        buffer.fill(0, stream).unwrap_err(),
        buffer.write(0, &[1], side).unwrap_err(),
        buffer.read(0, &mut [0], side).unwrap_err(),
        device.memory_info().unwrap_err(),
        stream.synchronize().unwrap_err(),
        side.synchronize().unwrap_err(),
        side.wait_stream(stream).unwrap_err(),
        event.record(stream).unwrap_err(),
        event.synchronize().unwrap_err(),
        timed[0].elapsed_time(&timed[1]).unwrap_err(),
        device.dedicated_stream(0).unwrap_err(),
        device.allocate(100 * MIB, stream).unwrap_err(),
        device.allocate_host(100 * MIB).unwrap_err(),
        device.synchronize().unwrap_err(),
    ] {
        assert_eq!(told(error)?, first);
    }
    assert!(event.is_complete()?, "a lost device does no more work");
    drop((buffer, pinned, event, timed));
    let _ = device.allocator().empty_cache();
    let _ = device.host_allocator().empty_cache();
    assert_eq!(control::calls(), calls, "later calls fail at once: the driver is not called again");
    Ok(first)
}

/// The loss may first be reported by any call.
fn at_a_call() -> Outcome {
    for call in [
        "zeCommandListAppendMemoryFill",
        "zeCommandListAppendMemoryCopy",
        "zeCommandListAppendBarrier",
        "zeEventHostSynchronize",
        "zeMemAllocDevice",
        "zeMemAllocHost",
        "zeMemFree",
    ] {
        let device = device()?; // opened again
        let mut other = device.allocate(64 * KIB, device.stream(0)?)?;
        let first = check_lost(device, || {
            control::fail(call, 1, LOST);
            let stream = device.stream(0)?;
            // One of these steps makes the failing call, and one of them reports the loss.
            let steps = [
                |other: &mut accelerator_core::Buffer<Xpu>, stream| other.fill(1, stream),
                |other: &mut accelerator_core::Buffer<Xpu>, stream| other.read(0, &mut [0], stream),
                |other: &mut accelerator_core::Buffer<Xpu>, _| other.accelerator().allocate_host(64 * MIB).map(drop),
                |other: &mut accelerator_core::Buffer<Xpu>, stream| {
                    other.accelerator().allocate(64 * MIB, stream).map(drop)
                },
                |other: &mut accelerator_core::Buffer<Xpu>, _| other.accelerator().allocator().empty_cache(),
                |other: &mut accelerator_core::Buffer<Xpu>, _| other.accelerator().synchronize(),
            ];
            let failed = steps.into_iter().find_map(|step| step(&mut other, stream).err());
            Ok(failed.ok_or("no call reported the loss")?)
        })?;
        assert_eq!((first.call, control::clear_faults()), (call, 0));
        drop(other);
        control::reset_lost();
    }
    Ok(())
}

/// The device is lost by work on memory that another library has freed. The call that waits for the work reports it.
fn by_its_work() -> Outcome {
    let device = device()?;
    let freed = raw::allocate(device.backend(), 1000)?;
    raw::free(device.backend(), freed)?;
    check_lost(device, || {
        let stream = device.stream(0)?;
        stream.native().submit(|list| raw::fill(device.backend(), list, freed, 1, 1000))?;
        Ok(stream.synchronize().unwrap_err())
    })?;
    Ok(())
}

fn another() -> Outcome {
    let (first, second) = (device_numbered(0)?, device_numbered(1)?);
    let stream = first.default_stream();
    let mut lost = first.allocate(100, stream)?;
    control::fail("zeCommandListAppendMemoryFill", 1, LOST);
    assert!(lost.fill(1, stream).is_err());
    let mut buffer = second.allocate(100, second.default_stream())?;
    buffer.write(0, &[7; 100], second.default_stream())?;
    // No copy can go through the lost device's memory.
    assert!(buffer.copy_from(&lost, second.default_stream()).is_err());
    let mut read = [0; 100];
    buffer.read(0, &mut read, second.default_stream())?;
    assert_eq!(read, [7; 100]);
    Ok(())
}

/// The lost device's objects stay, and so does the context, which another device may share.
fn dropped() -> Outcome {
    let (lost, other) = (Xpu::open(0)?, Xpu::open(1)?);
    let stream = lost.stream(StreamKind::Default)?;
    let event = lost.event(EventFlags::default())?;
    lost.record(&event, &stream)?;
    control::fail("zeMemAllocDevice", 1, LOST);
    assert!(lost.alloc(NonZeroU64::MIN).is_err());
    drop((event, stream, lost));
    assert!(Xpu::open(0).is_err());
    let stream = other.stream(StreamKind::Default)?;
    other.synchronize(&stream)?;
    drop((stream, other));
    assert_eq!(control::live_contexts(), 1);
    Ok(())
}
