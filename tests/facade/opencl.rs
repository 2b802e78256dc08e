//! The facade on OpenCL devices, where there are any.

use std::collections::BTreeMap;
use std::time::Instant;

use accelerator::host::Host;
use accelerator::memory::{self, memory_stats};
use accelerator::opencl::OpenCl;
use accelerator::opencl::cl3::{device, platform};
use accelerator::{
    Accelerator, Buffer, Error, Event, EventFlags, KIB, MIB, MemoryInfoSource, OutOfMemoryCause, PinnedBuffer, Result,
    Stream, StreamGuard, StreamId, current_accelerator, current_device_index, current_stream, device_count,
    get_device_capability, is_available, set_accelerator, synchronize, typed,
};

use crate::process::{HOST, OPENCL, processes};

processes! { on_opencl:
    fn opencl_is_preferred_to_the_host() {
        let backends = accelerator::backends();
        let place = |kind| backends.iter().position(|backend| backend.kind == kind);
        assert!(place(OPENCL) < place(HOST) && place(OPENCL).is_some());
        assert_eq!(current_accelerator(), Some(OPENCL));
        set_accelerator("host")?;
        assert_eq!(current_accelerator(), Some(HOST));
    }

    fn the_variable_prefers_the_host(ACCELERATOR_BACKEND = "host") {
        assert_eq!(current_accelerator(), Some(HOST));
        set_accelerator("opencl")?;
        assert_eq!(Buffer::allocate(1, None)?.device().kind, OPENCL);
    }

    fn the_variable_names_opencl(ACCELERATOR_BACKEND = "opencl") {
        assert_eq!(current_accelerator(), Some(OPENCL));
        let opencl = accelerator::backends().into_iter().find(|backend| backend.kind == OPENCL);
        assert_eq!(opencl.unwrap().devices, Ok(device_count()));
        assert!(is_available());
        assert_eq!(current_device_index()?, 0);
        assert_eq!(current_stream("opencl:0")?.id(), StreamId::DEFAULT);
        let Err(error) = memory_stats("host:0") else { unreachable!("the host is not current") };
        assert!(matches!(error, Error::DeviceKindMismatch { expected: OPENCL, .. }), "{error:?}");
        let beyond = device_count();
        let error = current_stream(beyond).unwrap_err();
        assert!(matches!(error, Error::InvalidDevice { kind: OPENCL, .. }), "{error:?}");
        assert!(get_device_capability(None)?.supported_dtypes.contains(&"float32"));
    }

    fn bytes_go_there_and_come_back(ACCELERATOR_BACKEND = "opencl") {
        let mut numbers: Vec<u32> = (0..1_000_000).collect();
        let source = Buffer::from_slice(&numbers, None)?;
        let mut copy = Buffer::allocate(source.len(), None)?;
        copy.copy_from(&source)?;
        copy.slice_mut::<u32>()?.write(999_998, &[7, 8])?;
        numbers[999_998..].copy_from_slice(&[7, 8]);
        assert_eq!(copy.to_vec::<u32>()?, numbers);
        assert_eq!(source.to_vec::<u32>()?[999_997..], [999_997, 999_998, 999_999]);

        let pinned = PinnedBuffer::from_slice(&numbers, None)?;
        let mut back = PinnedBuffer::allocate(pinned.len(), None)?;
        copy.fill(0)?;
        copy.copy_from_pinned(0, &pinned, 0..pinned.len())?;
        copy.copy_to_pinned(0..pinned.len(), &mut back, 0)?;
        assert_eq!(back.slice::<u32>()?, numbers);
        assert_eq!(memory::host_memory_stats(None)?["active_requests.current"], 2);

        let mut small = Buffer::allocate(12, None)?;
        small.fill(7)?;
        small.write(5, &[1, 2, 3])?;
        let mut bytes = [0; 11];
        small.read(1, &mut bytes)?;
        assert_eq!(bytes, [7, 7, 7, 7, 1, 2, 3, 7, 7, 7, 7]);
        assert!(Buffer::allocate(0, None)?.to_vec::<u64>()?.is_empty());
    }

    // The last variable gives PoCL two devices. With other drivers there may be only one.
    fn a_copy_reaches_the_last_device(ACCELERATOR_BACKEND = "opencl", POCL_DEVICES = "basic pthread") {
        let numbers: Vec<u64> = (0..3_000_000).collect(); // more than one 16 MiB staging chunk
        let source = Buffer::from_slice(&numbers, 0)?;
        let mut other = Buffer::allocate(source.len() + 8, device_count() - 1)?;
        other.fill(0xff)?;
        other.copy_from(&source)?;
        let copied = other.to_vec::<u64>()?;
        assert_eq!(copied[..numbers.len()], numbers);
        assert_eq!(copied[numbers.len()], u64::MAX);
    }

    fn streams_and_events_order_work(ACCELERATOR_BACKEND = "opencl") {
        let (side, current) = (Stream::new(None)?, current_stream(None)?);
        assert_ne!(side, current);
        let (begin, end) = (Event::with_flags(EventFlags::TIMING), Event::with_flags(EventFlags::TIMING));
        assert!(end.query()?, "never recorded");
        let mut buffer = Buffer::allocate(16 * MIB, None)?;
        buffer.fill(0)?;
        side.wait_stream(&current)?;

        let began = Instant::now();
        let on_side = StreamGuard::new(&side)?;
        begin.record(None)?;
        for value in 1..=20 {
            buffer.fill(value)?;
        }
        end.record(None)?;
        drop(on_side);
        buffer.record_stream(&side)?;
        assert_eq!(end.device(), Some(side.device()));
        current.wait_event(&end)?;
        assert_eq!(buffer.to_vec::<u64>()?, [0x1414_1414_1414_1414; 2 * MIB as usize]);
        assert!(end.query()?);
        end.synchronize()?;
        side.synchronize()?;
        let most = began.elapsed().as_secs_f64() * 1e3;
        let took = begin.elapsed_time(&end)?;
        assert!(took > 0.0 && took <= most, "{took} of at most {most} ms");
        assert_eq!(end.elapsed_time(&begin)?, -took);
        synchronize(None)?;
        assert!(side.query()? && current.query()?);
    }

    fn statistics_are_those_of_the_host() {
        let opencl = some_allocations()?;
        assert_eq!(opencl[0]["allocated_bytes.all.current"], 1024 + (6 << 20));
        set_accelerator("host")?;
        assert_eq!(opencl, some_allocations()?);
    }

    fn typed_gives_the_backends_own(ACCELERATOR_BACKEND = "opencl") {
        let opencl = typed::<OpenCl>(0)?;
        assert!(std::ptr::eq(opencl, Accelerator::<OpenCl>::open(0)?));
        let stream = Stream::new(0)?;
        assert_eq!(stream.typed::<OpenCl>()?.id(), stream.id());
        let buffer = Buffer::from_slice(&[1_u8; 600], 0)?;
        assert_eq!(buffer.typed::<OpenCl>()?.len(), 600);
        assert!(matches!(buffer.typed::<Host>(), Err(Error::DeviceMismatch { .. })));
        let error = typed::<Host>(0).unwrap_err();
        assert!(matches!(error, Error::DeviceKindMismatch { expected: OPENCL, .. }), "{error:?}");
    }

    fn capacity_is_what_a_device_hands_out(
        ACCELERATOR_BACKEND = "opencl", ACCELERATOR_OPENCL_CAPACITY = "64MiB"
    ) {
        let before = memory::get_memory_info(None)?;
        assert_eq!(before.total, 64 * MIB);
        let held = Buffer::allocate(10 * MIB, None)?;
        let after = memory::get_memory_info(None)?;
        let (_, id) = typed::<OpenCl>(0)?.backend().native();
        let extensions = device::get_device_info(id, device::CL_DEVICE_EXTENSIONS).map(String::from).unwrap();
        if !extensions.contains("cl_amd_device_attribute_query") {
            assert_eq!(before.source, MemoryInfoSource::Accounting, "no other driver reports free memory");
        }
        match after.source {
            MemoryInfoSource::Accounting => assert_eq!((before.free, after.free), (64 * MIB, 54 * MIB)),
            _ => assert!(after.free <= 54 * MIB),
        }
        let Err(Error::OutOfMemory(report)) = Buffer::allocate(60 * MIB, None) else {
            unreachable!("there are 54 MiB left")
        };
        assert_eq!((report.device.kind, report.cause), (OPENCL, OutOfMemoryCause::Device));
        drop(Buffer::allocate(54 * MIB, None)?);
        drop(held);
    }

    fn an_invalid_capacity_is_reported(ACCELERATOR_OPENCL_CAPACITY = "lots") {
        refuses("ACCELERATOR_OPENCL_CAPACITY must be a size above 0, such as 16GiB, but is \"lots\"")?;
    }

    // The last variable gives PoCL two devices, and the list puts the second first.
    fn a_list_of_devices_chooses_and_orders(
        ACCELERATOR_OPENCL_DEVICES = "PThread, cpu,GPU,accelerator", POCL_DEVICES = "basic pthread"
    ) {
        let mut expected = Vec::new();
        for kind in [
            device::CL_DEVICE_TYPE_CPU,
            device::CL_DEVICE_TYPE_GPU,
            device::CL_DEVICE_TYPE_ACCELERATOR,
        ] {
            for platform in platform::get_platform_ids().unwrap() {
                // A platform without a device of the requested type returns an error.
                for id in device::get_device_ids(platform, kind).unwrap_or_default() {
                    expected.push(device::get_device_info(id, device::CL_DEVICE_NAME).map(String::from).unwrap());
                }
            }
        }
        expected.sort_by_key(|name| !name.to_lowercase().contains("pthread"));
        let names: Result<Vec<_>> =
            (0..device_count()).map(|index| Ok(typed::<OpenCl>(index)?.properties().name.clone())).collect();
        assert_eq!(names?, expected);
    }

    fn a_list_that_means_no_device_is_told(ACCELERATOR_OPENCL_DEVICES = "no such device") {
        refuses("ACCELERATOR_OPENCL_DEVICES is `no such device`, which matches none of the devices: ")?;
    }
}

/// Returns the statistics after some allocations, and after their memory is freed.
fn some_allocations() -> Result<[BTreeMap<String, i64>; 2]> {
    let kept = [Buffer::allocate(1024, None)?, Buffer::allocate(6 * MIB, None)?];
    for len in [1, 600, 40 * KIB, 3 * MIB, 30 * MIB] {
        drop(Buffer::allocate(len, None)?);
    }
    let stats = memory_stats(None)?;
    drop(kept);
    memory::empty_cache()?;
    Ok([stats, memory_stats(None)?])
}

/// Checks that OpenCL is unavailable for this reason and the host is used instead.
fn refuses(reason: &str) -> Result<()> {
    assert_eq!(current_accelerator(), Some(HOST));
    let error = set_accelerator("opencl").unwrap_err();
    assert!(matches!(error, Error::NoAccelerator { .. }), "{error:?}");
    let text = format!("no accelerator is available: opencl: {reason}");
    assert!(error.to_string().starts_with(&text), "expected `{text}` in `{error}`");
    drop(Buffer::allocate(1, None)?);
    Ok(())
}
