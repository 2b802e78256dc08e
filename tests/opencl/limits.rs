//! How much memory a device gives, and the error when that is not enough.

use std::sync::{Arc, Mutex};

use accelerator_core::{
    Accelerator, Backend, DriverError, DriverErrorKind, Error, KIB, MIB, MemoryInfo, MemoryInfoSource, OutOfMemory,
    OutOfMemoryCause,
};
use accelerator_opencl::cl3::{device, memory};
use accelerator_opencl::{KernelArgument, OpenCl};
use libtest_mimic::{Failed, Trial};

use crate::rig::{Outcome, around, bytes, called, check_all_gone, free, trial};

const CAPACITY: u64 = 64 * MIB;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("limits::the_device_gives_what_it_has", properties),
        trial("limits::of_the_driver_alone", driver_budget),
        trial("limits::the_cache_makes_room_up_to_the_last_byte", budget),
        trial("limits::over_the_largest_allocation", largest_allocation),
        trial("limits::sub_buffers_cost_no_budget", sub_buffers),
        Trial::test("limits::there_is_no_device_1000", no_such_device),
    ]
}

/// Returns a number that describes the device, queried without the backend.
fn number(backend: &OpenCl, what: u32) -> Result<u64, Failed> {
    called(device::get_device_info(backend.native().1, what).map(u64::from))
}

fn properties() -> Outcome {
    let backend = OpenCl::with_capacity(0, None)?;
    let properties = backend.properties();
    assert_eq!(properties.total_memory, number(&backend, device::CL_DEVICE_GLOBAL_MEM_SIZE)?);
    assert_eq!(properties.largest_allocation, number(&backend, device::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?);
    assert!(properties.alignment.is_power_of_two() && !properties.name.is_empty());
    assert_eq!(backend.memory_info()?.total, properties.total_memory);
    Ok(())
}

/// Checks the used bytes. If the driver reports free memory, other processes may use some as well.
fn check_used(backend: &OpenCl, used: u64) -> Outcome {
    let MemoryInfo { free, total, source, .. } = backend.memory_info()?;
    assert_eq!(total, CAPACITY);
    let extensions = called(device::get_device_info(backend.native().1, device::CL_DEVICE_EXTENSIONS))?;
    match String::from(extensions).contains("cl_amd_device_attribute_query") {
        false => assert_eq!((free, source), (CAPACITY - used, MemoryInfoSource::Accounting)),
        true => assert!(free <= CAPACITY - used && source == MemoryInfoSource::Driver),
    }
    Ok(())
}

fn driver_budget() -> Outcome {
    let backend = OpenCl::with_capacity(0, Some(CAPACITY))?;
    assert_eq!(backend.properties().total_memory, CAPACITY);
    check_used(&backend, 0)?;
    let full = DriverError::new(DriverErrorKind::OutOfMemory, "clCreateBuffer", -4, "CL_MEM_OBJECT_ALLOCATION_FAILURE");
    let sizes = [40 * MIB, 1, 24 * MIB - 1];
    let mut live = Vec::new();
    for size in sizes {
        live.push((backend.alloc(bytes(size))?, bytes(size)));
    }
    check_used(&backend, CAPACITY)?;
    for size in [1, CAPACITY, CAPACITY + 1] {
        assert_eq!(backend.alloc(bytes(size)).unwrap_err(), full);
    }
    let (ptr, len) = live.swap_remove(1);
    give_back(&backend, ptr, len.get());
    check_used(&backend, CAPACITY - 1)?;
    assert_eq!(backend.alloc(bytes(2)).unwrap_err(), full);
    live.push((backend.alloc(bytes(1))?, bytes(1)));
    live.into_iter().for_each(|(ptr, len)| give_back(&backend, ptr, len.get()));
    check_used(&backend, 0)
}

#[allow(unsafe_code)]
fn give_back(backend: &OpenCl, ptr: accelerator_opencl::OpenClPtr, len: u64) {
    // SAFETY: Every caller passes its own allocation with its length, once.
    unsafe { backend.dealloc(ptr, bytes(len)) };
}

fn refusal(device: &'static Accelerator<OpenCl>, len: u64) -> OutOfMemory {
    match device.allocate(len, device.default_stream()) {
        Err(Error::OutOfMemory(report)) => *report,
        other => unreachable!("{len} bytes: {other:?}"),
    }
}

fn budget() -> Outcome {
    let device = around(OpenCl::with_capacity(0, Some(CAPACITY))?)?;
    let (stream, statistics) = (device.default_stream(), || device.allocator().statistics());
    // Segments of 20, 20, 20, 2 and 2 MiB.
    let mut live = Vec::new();
    for size in [20 * MIB, 19 * MIB, 2 * MIB, MIB, MIB, MIB] {
        live.push(device.allocate(size, stream)?);
    }
    assert_eq!(statistics().reserved_bytes.all.current, CAPACITY as i64);
    check_used(device.backend(), CAPACITY)?;

    live.push(device.allocate(MIB, stream)?);
    let report = refusal(device, 512);
    assert_eq!((report.cause, report.requested, report.segment), (OutOfMemoryCause::Device, 512, 2 * MIB));
    assert_eq!((report.total, report.free, report.allowed), (Some(CAPACITY), Some(0), None));
    // The 19 MiB block gets its whole segment.
    assert_eq!((report.allocated, report.reserved, report.pending), (46 * MIB, CAPACITY, 0));
    assert_eq!((statistics().num_ooms, statistics().num_alloc_retries), (1, 1));
    // The rest of a segment is still free.
    let mut rest = device.allocate(18 * MIB, stream)?;
    rest.fill(9, stream)?;
    assert!(rest.slice::<u8>()?.to_vec(stream)? == vec![9; 18 << 20]);

    // A cached segment is released for a request that does not fit into it.
    drop((live.remove(0), live.remove(0)));
    check_used(device.backend(), CAPACITY)?;
    let large = device.allocate(40 * MIB, stream)?;
    check_used(device.backend(), CAPACITY)?;
    assert_eq!((statistics().num_ooms, statistics().num_alloc_retries), (1, 2));
    let report = refusal(device, 3 * MIB);
    assert_eq!((report.cause, report.free), (OutOfMemoryCause::Device, Some(0)));
    drop((large, live, rest));
    check_used(device.backend(), CAPACITY)?;
    check_all_gone(device)?;
    check_used(device.backend(), 0)
}

fn largest_allocation() -> Outcome {
    let largest = OpenCl::with_capacity(0, None)?.properties().largest_allocation;
    let device = around(OpenCl::with_capacity(0, Some(largest.saturating_mul(4)))?)?;
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let driver = DriverError::new(DriverErrorKind::AllocationTooLarge, "clCreateBuffer", -61, "CL_INVALID_BUFFER_SIZE");
    assert_eq!(device.backend().alloc(bytes(largest + 1)).unwrap_err(), driver);
    assert_eq!(free(device)?.unwrap_or(largest * 4), largest * 4);

    let observed = Arc::new(Mutex::new(0));
    let told = Arc::clone(&observed);
    allocator.add_out_of_memory_observer(move |_| *told.lock().unwrap() += 1);
    drop(device.allocate(30 * MIB, stream)?);
    let live = device.allocate(KIB, stream)?;
    let before = (allocator.snapshot(), allocator.statistics());
    for count in 1..4 {
        let report = refusal(device, largest + 1);
        assert_eq!(report.cause, OutOfMemoryCause::AllocationTooLarge { largest, driver });
        let text = report.to_string();
        let part = format!("allows at most {largest}: clCreateBuffer failed: CL_INVALID_BUFFER_SIZE (code -61).");
        assert!(text.contains(&part), "`{part}` in: {text}");
        let mut statistics = allocator.statistics();
        assert_eq!((statistics.num_ooms, *observed.lock().unwrap()), (count, count));
        statistics.num_ooms = 0;
        assert_eq!((allocator.snapshot(), statistics), before, "the cache is kept");
    }
    drop((device.allocate(30 * MIB, stream)?, live));
    check_all_gone(device)
}

fn sub_buffers() -> Outcome {
    let device = around(OpenCl::with_capacity(0, Some(CAPACITY))?)?;
    let stream = device.default_stream();
    let buffers = [MIB, 11 * MIB].map(|len| device.allocate(len, stream).unwrap());
    check_used(device.backend(), 14 * MIB)?;
    for buffer in &buffers {
        let argument = KernelArgument::new(buffer, stream)?;
        let size = memory::get_mem_object_info(argument.native(), memory::CL_MEM_SIZE).map(usize::from);
        assert_eq!(called(size)? as u64, buffer.len());
    }
    check_used(device.backend(), 14 * MIB)?;
    drop(buffers);
    check_all_gone(device)
}

fn no_such_device() -> Outcome {
    let Err(error) = OpenCl::open(1000) else { return Err("there is a device 1000".into()) };
    assert_eq!((error.kind, error.call), (DriverErrorKind::InvalidArgument, "clGetDeviceIDs"));
    assert_eq!(error.name, "CL_DEVICE_NOT_FOUND");
    match (Accelerator::<OpenCl>::open(1000), OpenCl::probe()) {
        (Err(Error::InvalidDevice { kind, index, count }), Ok(there)) => {
            assert_eq!((kind, index, count), (OpenCl::KIND, 1000, there));
        }
        (Err(Error::NoAccelerator { reasons }), Err(why)) => assert_eq!(reasons, format!("opencl: {why}")),
        (other, probed) => return Err(format!("{other:?}, but the probe returns {probed:?}").into()),
    }
    assert!(Accelerator::<OpenCl>::opened(1000).is_none());
    assert_eq!(OpenCl::with_capacity(u32::MAX, None).unwrap_err(), error);
    Ok(())
}
