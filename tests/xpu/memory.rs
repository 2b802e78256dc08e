//! Observed driver behaviour for memory requests, and the amount of free memory.
#![allow(unsafe_code)] // allocates from the backend directly

use std::num::NonZeroU64;

use accelerator_core::{
    Backend, DriverErrorKind, Error, GIB, KIB, MIB, MemoryInfo, MemoryInfoSource, OutOfMemoryCause, StreamKind,
};
use accelerator_xpu::{Xpu, XpuPtr};
use libtest_mimic::{Failed, Trial};

use crate::control::{self, REFUSED};
use crate::programs::failures;
use crate::raw;
use crate::rig::{Outcome, check_all_gone, device, device_numbered, simulated, unchecked};

const QUIRKS: &str = "ZE_SIM_QUIRKS";
const NO_SYSMAN: &[(&str, &str)] = &[(QUIRKS, "no-sysman"), ("ZE_SIM_MEMORY", "8G")];
const INTEGRATED: &[(&str, &str)] = &[(QUIRKS, "no-sysman,integrated"), ("ZE_SIM_MEMORY", "8G")];
const SYSMAN: &[(&str, &str)] =
    &[("ZES_ENABLE_SYSMAN", "1"), ("ZE_SIM_DEVICES", "3"), ("ZE_AFFINITY_MASK", "1,2"), ("ZE_SIM_MEMORY", "8G")];
const USABLE: &[(&str, &str)] = &[("ZES_ENABLE_SYSMAN", "1"), (QUIRKS, "usable-memory"), ("ZE_SIM_MEMORY", "8G")];
const NO_RELAXED_LIMITS: &[(&str, &str)] = &[(QUIRKS, "no-relaxed-limits"), ("ZE_SIM_MAX_ALLOCATION", "1G")];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("memory::none_is_never_asked_for", &[(QUIRKS, "size-zero-aborts")], no_bytes),
        simulated("memory::handles_after_their_count", &[(QUIRKS, "no-handles-without-count")], counted),
        simulated("memory::alignment", &[], alignment),
        simulated("memory::ignored_alignment", &[(QUIRKS, "ignore-alignment")], ignored_alignment),
        simulated("memory::null_and_success", &[(QUIRKS, "null-success")], null_and_success),
        simulated("memory::over_the_limit", &[("ZE_SIM_MAX_ALLOCATION", "1G")], over_the_limit),
        simulated("memory::over_the_limit_of_old_drivers", NO_RELAXED_LIMITS, over_the_old_limit),
        simulated("memory::out_of_memory", &[("ZE_SIM_MEMORY", "1G")], out_of_memory),
        simulated("memory::out_of_host_memory", &[("ZE_SIM_HOST_MEMORY", "64M")], failures::out_of_host_memory::<Xpu>),
        simulated("memory::free_by_accounting", NO_SYSMAN, free_by_accounting),
        simulated("memory::free_by_accounting_of_an_integrated_device", INTEGRATED, free_of_integrated),
        simulated("memory::free_by_sysman", SYSMAN, free_by_sysman),
        // Some loaders' own checks do not recognise this extension.
        unchecked("memory::free_by_the_driver_itself", USABLE, free_by_driver),
        simulated("memory::sysman_that_fails", SYSMAN, failing_sysman),
        simulated("memory::back_only_behind_its_work", &[], back_behind_work),
    ]
}

fn bytes(len: u64) -> NonZeroU64 {
    NonZeroU64::new(len).unwrap()
}

fn give(device: &Xpu, at: XpuPtr, len: u64) {
    // SAFETY: Each trial passes its own allocation, once.
    unsafe { device.dealloc(at, bytes(len)) };
}

/// The simulated driver aborts the process at a size of 0.
fn no_bytes() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let (mut empty, mut other) = (device.allocate(0, stream)?, device.allocate(0, stream)?);
    let mut pinned = device.allocate_host(0)?;
    empty.fill(1, stream)?;
    empty.write(0, &[], stream)?;
    empty.read(0, &mut [], stream)?;
    empty.copy_from(&other, stream)?;
    other.copy_from_pinned(0, &pinned, 0..0, stream)?;
    other.copy_to_pinned(0..0, &mut pinned, 0, stream)?;
    device.synchronize()?;
    let asked = ["zeMemAllocDevice", "zeMemAllocHost", "zeCommandListAppendMemoryFill"].map(control::calls_of);
    assert_eq!((asked, control::calls_of("zeCommandListAppendMemoryCopy")), ([0; 3], 0));
    drop((empty, other, pinned));
    check_all_gone(device)
}

/// The simulated driver refuses to return handles before their count.
fn counted() -> Outcome {
    let device = device()?;
    drop(device.allocate(MIB, device.default_stream())?);
    check_all_gone(device)
}

/// Checks every size, with small and large pages.
fn alignment() -> Outcome {
    let device = Xpu::open(0)?;
    let alignment = device.properties().alignment;
    assert!(alignment >= 512, "{alignment}");
    for len in [1, 511, 513, 4097, 70_000, 3 * MIB + 1] {
        let (at, pinned) = (device.alloc(bytes(len))?, device.alloc_host(bytes(len))?);
        assert!((at.native().addr() as u64).is_multiple_of(alignment), "{at:?}");
        assert!((pinned.addr().get() as u64).is_multiple_of(alignment), "{pinned:?}");
        give(&device, at, len);
        // SAFETY: Just allocated, and nothing uses it.
        unsafe { device.dealloc_host(pinned, bytes(len)) };
    }
    Ok(())
}

/// Memory that is not aligned as promised is refused, and returned to the driver.
fn ignored_alignment() -> Outcome {
    let device = Xpu::open(0)?;
    let alignment = device.properties().alignment;
    let at = raw::allocate(&device, 1000)?;
    let keeps = (at.addr() as u64).is_multiple_of(alignment);
    raw::free(&device, at)?;
    match device.alloc(bytes(1000)) {
        Ok(at) => {
            assert!((at.native().addr() as u64).is_multiple_of(alignment), "{at:?}");
            give(&device, at, 1000);
        }
        Err(error) => {
            assert_eq!((error.kind, error.call), (DriverErrorKind::Other, "zeMemAllocDevice"));
            assert!(error.name.contains("512"), "{error}");
            let error = device.alloc_host(bytes(1000)).unwrap_err();
            assert_eq!((error.kind, error.call), (DriverErrorKind::Other, "zeMemAllocHost"));
        }
    }
    assert!(!keeps, "the simulated driver aligned the memory anyway, so nothing was tested");
    assert_eq!((control::live_allocations(), control::live_host()), (0, 0));
    Ok(())
}

fn null_and_success() -> Outcome {
    let device = device()?;
    for (error, call) in [
        (device.backend().alloc(bytes(MIB)).unwrap_err(), "zeMemAllocDevice"),
        (device.backend().alloc_host(bytes(MIB)).unwrap_err(), "zeMemAllocHost"),
    ] {
        assert_eq!((error.kind, error.call), (DriverErrorKind::OutOfMemory, call));
        assert!(error.to_string().contains("returned neither memory"), "{error}");
    }
    let error = device.allocate(MIB, device.default_stream()).unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory(_)), "{error:?}");
    let error = device.allocate_host(MIB).unwrap_err();
    assert!(matches!(&error, Error::HostOutOfMemory { .. }), "{error:?}");
    Ok(())
}

fn over_the_limit() -> Outcome {
    let device = device()?;
    assert_eq!(device.properties().largest_allocation, u64::MAX);
    let stream = device.default_stream();
    let mut buffer = device.allocate(3 * GIB, stream)?;
    buffer.slice_mut::<u8>()?; // the whole buffer is there
    drop(buffer);
    // A request for more than the device has fails for lack of memory, not because of the limit.
    let error = device.backend().alloc(bytes(1 << 50)).unwrap_err();
    assert_eq!(error.kind, DriverErrorKind::OutOfMemory);
    check_all_gone(device)
}

fn over_the_old_limit() -> Outcome {
    let device = device()?;
    assert_eq!(device.properties().largest_allocation, GIB);
    let stream = device.default_stream();
    let kept = device.allocate(64 * MIB, stream)?;
    drop(device.allocate(64 * MIB, stream)?); // stays in the cache, which need not be released
    let error = device.allocate(GIB + 1, stream).unwrap_err();
    let Error::OutOfMemory(told) = &error else { return Err(format!("{error:?}").into()) };
    let OutOfMemoryCause::AllocationTooLarge { largest, driver } = told.cause else {
        return Err(format!("{told:?}").into());
    };
    assert_eq!((largest, driver.call, driver.kind), (GIB, "zeMemAllocDevice", DriverErrorKind::AllocationTooLarge));
    for part in ["ZE_experimental_relaxed_allocation_limits", "update the driver", "1073741824"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(control::live_allocations(), 2);
    drop((kept, device.allocate(GIB, stream)?)); // as much as the driver allows
    check_all_gone(device)
}

fn out_of_memory() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    let error = device.allocate(2 * GIB, stream).unwrap_err();
    let Error::OutOfMemory(told) = &error else { return Err(format!("{error:?}").into()) };
    assert!(error.to_string().contains("xpu:0"), "{error}");
    assert_eq!((told.requested, told.cause), (2 * GIB, OutOfMemoryCause::Device));
    drop(device.allocate(600 * MIB, stream)?); // stays in the cache
    let buffer = device.allocate(700 * MIB, stream)?; // requires releasing the cache
    let statistics = device.allocator().statistics();
    assert_eq!((statistics.num_ooms, statistics.num_alloc_retries), (1, 2));
    drop(buffer);
    check_all_gone(device)
}

/// Returns the free memory and its source, before and after allocations of the backend and of another library.
fn told_free(device: &Xpu) -> Result<[MemoryInfo; 3], Failed> {
    let before = device.memory_info()?;
    let own = device.alloc(bytes(GIB))?;
    let taken = device.memory_info()?;
    let other = raw::allocate(device, (2 * GIB) as usize)?;
    let beside = device.memory_info()?;
    raw::free(device, other)?;
    give(device, own, GIB);
    assert_eq!(device.memory_info()?, before);
    Ok([before, taken, beside])
}

fn check_accounting(percent: u64) -> Outcome {
    let usable = (8 * GIB) * percent / 100;
    let expected =
        [usable, usable - GIB, usable - GIB].map(|free| MemoryInfo::new(free, 8 * GIB, MemoryInfoSource::Accounting));
    assert_eq!(told_free(&Xpu::open(0)?)?, expected);
    Ok(())
}

/// Like PyTorch, counts 95% of the memory as usable.
fn free_by_accounting() -> Outcome {
    check_accounting(95)
}

fn free_of_integrated() -> Outcome {
    check_accounting(94)
}

/// System management reports the right device, even if other devices are visible or hidden.
fn free_by_sysman() -> Outcome {
    let (device, other) = (Xpu::open(1)?, Xpu::open(0)?);
    let expected = [8, 7, 5].map(|free| MemoryInfo::new(free * GIB, 8 * GIB, MemoryInfoSource::Driver));
    assert_eq!(told_free(&device)?, expected);
    let taken = other.alloc(bytes(GIB))?;
    assert_eq!([device.memory_info()?.free, other.memory_info()?.free], [8 * GIB, 7 * GIB]);
    give(&other, taken, GIB);
    let asked = || ["zesMemoryGetState", "zesDeviceEnumMemoryModules"].map(control::calls_of);
    let before = asked();
    drop((other, device));
    let device = device_numbered(0)?;
    drop(device.allocate(MIB, device.default_stream())?);
    assert_eq!(asked(), before, "a slow query while allocating memory");
    check_all_gone(device)
}

/// The driver's own report is preferred over system management. The two differ by 1 MiB in the simulated driver.
fn free_by_driver() -> Outcome {
    let expected = [8, 7, 5].map(|free| MemoryInfo::new(free * GIB - MIB, 8 * GIB, MemoryInfoSource::Driver));
    let device = Xpu::open(0)?;
    assert_eq!(told_free(&device)?, expected);
    // If the driver does not report free memory, system management is the fallback.
    control::fail("zeDeviceGetProperties", 1, REFUSED);
    let info = device.memory_info()?;
    assert_eq!((info.free, info.source, control::clear_faults()), (8 * GIB, MemoryInfoSource::Driver, 0));
    Ok(())
}

/// The fallback is accounting, and the source says so.
fn failing_sysman() -> Outcome {
    for call in ["zesDeviceEnumMemoryModules", "zesMemoryGetState"] {
        let device = Xpu::open(0)?;
        control::fail(call, 1, REFUSED);
        let info = device.memory_info()?;
        assert_eq!((info.source, control::clear_faults()), (MemoryInfoSource::Accounting, 0), "{call}");
        assert_eq!(info.free, 8 * GIB * 95 / 100, "{call}");
    }
    Ok(())
}

/// `zeMemFree` does not wait, so memory is freed when all streams are done with it.
fn back_behind_work() -> Outcome {
    let device = Xpu::open(0)?;
    let streams = [0, 1].map(|_| device.stream(StreamKind::Side { priority: 0 }).unwrap());
    for round in 0..20 {
        let len = 64 * KIB;
        let at = device.alloc(bytes(len))?;
        for stream in &streams {
            control::hold(stream.native());
            // SAFETY: The memory is that long, and is freed only later.
            unsafe { device.fill(at, round, bytes(len), stream) }?;
        }
        give(&device, at, len);
        assert_eq!(control::live_allocations(), 0);
        let idle = streams.iter().map(|stream| device.is_idle(stream)).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(idle, [true; 2], "the memory was freed before its work was done");
    }
    Ok(())
}
