//! The exact driver calls and device properties, checked against the driver directly.
#![allow(unsafe_code)] // calls the driver directly

use accelerator_core::{
    Accelerator, Backend, DriverError, DriverErrorKind, Error, EventFlags, MIB, PciAddress, StreamKind, Uuid,
};
use accelerator_cuda::Cuda;
use accelerator_cuda::cudarc::driver::LaunchConfig;
use accelerator_cuda::cudarc::driver::sys::{self, CUresult as Code, CUstream, CUstream_flags as Flag};
use accelerator_cuda::cudarc::nvrtc::Ptx;
use libtest_mimic::Trial;

use crate::rig::{self, Outcome, check_all_gone, device, device_numbered, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("exact::identities", &[("CUDA_SIM_DEVICES", "4"), ("CUDA_VISIBLE_DEVICES", "3,1")], identities),
        trial("exact::streams", &[], streams),
        trial("exact::side_streams_wait_for_no_default_stream", &[], side_streams),
        trial("exact::streams_are_destroyed", &[], destroyed_streams),
        trial("exact::streams_of_other_devices_are_not_ours", &[("CUDA_SIM_DEVICES", "2")], whose_streams),
        trial("exact::event_flags", &[], event_flags),
        trial("exact::events_of_the_facade", &[], events_of_the_facade),
        trial("exact::elapsed_time", &[], elapsed_time),
        trial("exact::pinned_memory", &[], pinned_memory),
        trial("exact::sticky_errors", &[], sticky_errors),
        trial("exact::lost_devices_for_cudarc", &[], lost_for_cudarc),
        trial("exact::other_errors", &[], other_errors),
    ]
}

/// The simulated driver derives both from the device's number in the machine.
fn identities() -> Outcome {
    for (ordinal, number) in [(0, 3), (1, 1)] {
        let device = device_numbered(ordinal)?;
        let properties = device.properties();
        let uuid = format!("5cda5130-0000-4000-8000-{number:012x}");
        assert_eq!(properties.uuid.as_ref().map(Uuid::to_string), Some(uuid));
        let address = PciAddress { domain: 0x0a, bus: 0x10 + number, device: 3, function: 0 };
        assert_eq!(properties.pci_address, Some(address));
        let mut text = [0_u8; 32];
        let raw = device.backend().native().0;
        // SAFETY: The call writes at most that many bytes.
        let told = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, raw) };
        assert_eq!(told, Code::CUDA_SUCCESS);
        let text = std::ffi::CStr::from_bytes_until_nul(&text)?.to_str()?;
        assert!(address.to_string().eq_ignore_ascii_case(text), "{address} {text}");
    }
    Ok(())
}

/// Returns the stream's priority and flags according to the driver.
fn made_with(stream: CUstream) -> (i32, u32) {
    let (mut priority, mut flags) = (i32::MAX, u32::MAX);
    // SAFETY: The stream is live, and the call writes a number.
    assert_eq!(unsafe { sys::cuStreamGetPriority(stream, &mut priority) }, Code::CUDA_SUCCESS);
    // SAFETY: As above.
    assert_eq!(unsafe { sys::cuStreamGetFlags(stream, &mut flags) }, Code::CUDA_SUCCESS);
    (priority, flags)
}

fn streams() -> Outcome {
    let device = device()?;
    for priority in -5..=0 {
        for stream in [device.stream(priority)?, device.dedicated_stream(priority)?] {
            let expected = (priority, Flag::CU_STREAM_NON_BLOCKING as u32);
            assert_eq!(made_with(stream.native().native()), expected);
        }
    }
    let default = device.default_stream().native().native();
    assert!(default.is_null(), "the legacy stream, which other libraries use by default");
    Ok(())
}

/// Work on a side stream completes while the default stream's work does not.
fn side_streams() -> Outcome {
    let device = device()?;
    let (default, side) = (device.default_stream(), device.stream(0)?);
    let [mut slow, mut quick] = [default, side].map(|stream| device.allocate(MIB, stream).unwrap());
    assert_eq!(rig::hold(default.native().native().expose_provenance()), 0);
    slow.fill(1, default)?;
    quick.fill(2, side)?;
    side.synchronize()?;
    assert!(!default.is_idle()?, "the side stream made the default stream advance");
    default.synchronize()?;
    assert!(default.is_idle()?);
    drop((slow, quick));
    check_all_gone(device)
}

/// The backend's own streams are destroyed when they are dropped; adopted ones never are.
fn destroyed_streams() -> Outcome {
    let device = device()?;
    let backend = device.backend();
    let before = rig::live_streams();
    let own = backend.stream(StreamKind::Side { priority: 0 })?;
    assert_eq!(rig::live_streams(), before + 1);
    // SAFETY: The stream outlives the adopted one.
    drop(unsafe { backend.adopt(own.native()) });
    assert_eq!(rig::live_streams(), before + 1);
    drop(own);
    assert_eq!(rig::live_streams(), before);
    drop(backend.stream(StreamKind::Default)?);
    device.default_stream().synchronize()?;
    Ok(())
}

/// Also if the driver has only the older of the two calls, or refuses them.
fn whose_streams() -> Outcome {
    let (here, there) = (device_numbered(0)?, device_numbered(1)?);
    let stream = here.stream(0)?;
    // SAFETY: Streams of a device's pool live as long as the process.
    let owns = |device: &Accelerator<Cuda>| unsafe { device.backend().owns(stream.native().native()) };
    assert_eq!((owns(here)?, owns(there)?), (true, false));
    let refused = || owns(here).map_err(|error| (error.call, error.code));
    rig::fail("cuStreamGetCtx_v2", 1, REFUSED);
    assert_eq!(refused(), Err(("cuStreamGetCtx_v2", REFUSED.into())));
    rig::fail("cuStreamGetCtx_v2", 1, UNSUPPORTED);
    rig::fail("cuStreamGetCtx", 1, REFUSED);
    assert_eq!(refused(), Err(("cuStreamGetCtx", REFUSED.into())));
    for (device, own) in [(here, true), (there, false)] {
        rig::fail("cuStreamGetCtx_v2", 1, UNSUPPORTED);
        assert_eq!(owns(device)?, own);
    }
    Ok(())
}

const REFUSED: i32 = Code::CUDA_ERROR_INVALID_VALUE as i32;
const UNSUPPORTED: i32 = Code::CUDA_ERROR_NOT_SUPPORTED as i32;

/// Each flag reaches the driver, which itself refuses interprocess events with timing.
fn event_flags() -> Outcome {
    let device = device()?;
    let backend = device.backend();
    let plain = EventFlags::default();
    for (flags, expected) in [
        (plain, 2),
        (EventFlags::TIMING, 0),
        (EventFlags { blocking: true, ..plain }, 1 + 2),
        (EventFlags { blocking: true, ..EventFlags::TIMING }, 1),
        (EventFlags { interprocess: true, ..plain }, 2 + 4),
        (EventFlags { blocking: true, interprocess: true, ..plain }, 1 + 2 + 4),
    ] {
        let event = backend.event(flags)?;
        assert_eq!(rig::event_flags(event.native().expose_provenance()), expected, "{flags:?}");
        assert_eq!(backend.event_id(&event), event.native().addr() as u64);
    }
    let refused = backend.event(EventFlags { interprocess: true, ..EventFlags::TIMING }).unwrap_err();
    assert_eq!((refused.kind, refused.name), (DriverErrorKind::InvalidArgument, "CUDA_ERROR_INVALID_VALUE"));
    Ok(())
}

/// The allocator's reusable events have default flags, whatever events a program creates.
fn events_of_the_facade() -> Outcome {
    use accelerator::{Buffer, Event, Stream, current_stream};

    let interprocess = EventFlags { interprocess: true, blocking: true, ..EventFlags::default() };
    let event = Event::with_flags(interprocess);
    event.record(None)?;
    let native = event.typed::<Cuda>()?.unwrap().native().unwrap().native();
    assert_eq!(event.event_id(), native.addr() as u64);
    assert_eq!(rig::event_flags(native.expose_provenance()), 1 + 2 + 4);
    drop(event);
    let side = Stream::new(None)?;
    let buffer = Buffer::allocate(MIB, None)?;
    buffer.record_stream(&side)?;
    drop(buffer); // records one of the allocator's events
    current_stream(None)?.record_event()?;
    assert_eq!(rig::event_flags(native.expose_provenance()), u32::MAX, "it is destroyed, not pooled");

    let with_timing = Event::with_flags(EventFlags { enable_timing: true, ..interprocess });
    let Err(Error::Driver { source, .. }) = with_timing.record(None) else { panic!("CUDA refuses it") };
    assert_eq!(source.kind, DriverErrorKind::InvalidArgument);
    Ok(())
}

const SPIN: &str = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry spin() { ret; }\n";

/// The simulated kernel takes ten milliseconds of virtual time, the following record at most a microsecond.
fn elapsed_time() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let kernel = device.backend().cudarc()?.load_module(Ptx::from_src(SPIN))?.load_function("spin")?;
    let on = accelerator_cuda::cudarc_stream(stream)?;
    let [start, end] = [0; 2].map(|_| device.event(EventFlags::TIMING));
    start.record(stream)?;
    // SAFETY: The kernel has no arguments and touches nothing.
    unsafe { on.launch_builder(&kernel).launch(LaunchConfig::for_num_elems(1)) }?;
    end.record(stream)?;
    stream.synchronize()?;
    let milliseconds = start.elapsed_time(&end)?;
    assert!((10.0..=10.001).contains(&milliseconds), "{milliseconds}");
    assert_eq!(end.elapsed_time(&start)?, -milliseconds);
    assert_eq!(start.elapsed_time(&start)?, 0.0);
    Ok(())
}

/// Pinned memory is portable to every context, and not write-combined.
fn pinned_memory() -> Outcome {
    let device = device()?;
    let pinned = device.allocate_host(1000)?;
    let (mut flags, at) = (u32::MAX, pinned.ptr().map_or(std::ptr::null_mut(), |at| at.as_ptr().cast()));
    // SAFETY: The memory is live, and the call writes a number.
    assert_eq!(unsafe { sys::cuMemHostGetFlags(&mut flags, at) }, Code::CUDA_SUCCESS);
    assert_eq!(flags, sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP);
    drop(pinned);
    check_all_gone(device)
}

/// Returns the error of a fill for which the driver returns this code.
fn refused_fill(device: &'static Accelerator<Cuda>, code: i32) -> DriverError {
    let stream = device.default_stream();
    let mut buffer = device.allocate(100, stream).unwrap();
    rig::fail("cuMemsetD8Async", 1, code);
    match buffer.fill(0, stream) {
        Err(Error::Driver { source, .. }) => source,
        other => panic!("{code}: {other:?}"),
    }
}

/// Codes after which CUDA documents that the context or the process must end.
const STICKY: [Code; 14] = [
    Code::CUDA_ERROR_DEINITIALIZED,
    Code::CUDA_ERROR_ECC_UNCORRECTABLE,
    Code::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    Code::CUDA_ERROR_ILLEGAL_ADDRESS,
    Code::CUDA_ERROR_LAUNCH_TIMEOUT,
    Code::CUDA_ERROR_ASSERT,
    Code::CUDA_ERROR_HARDWARE_STACK_ERROR,
    Code::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    Code::CUDA_ERROR_MISALIGNED_ADDRESS,
    Code::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    Code::CUDA_ERROR_INVALID_PC,
    Code::CUDA_ERROR_LAUNCH_FAILED,
    Code::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    Code::CUDA_ERROR_EXTERNAL_DEVICE,
];

/// More such codes, which older bindings lack.
const LATER_STICKY: [(i32, &str); 2] = [(226, "CUDA_ERROR_CONTAINED"), (721, "CUDA_ERROR_TENSOR_MEMORY_LEAK")];

/// Each of these codes loses the device: the driver is not called again.
fn sticky_errors() -> Outcome {
    let named = STICKY.map(|code| (code as i32, format!("{code:?}")));
    let later = LATER_STICKY.map(|(code, name)| (code, name.to_owned()));
    for (code, name) in named.into_iter().chain(later) {
        let device = device()?; // opened again
        let told = refused_fill(device, code);
        assert_eq!((told.kind, told.code, told.name), (DriverErrorKind::DeviceLost, code.into(), &*name));
        let calls = rig::calls();
        assert_eq!(device.backend().memory_info().err(), Some(told));
        assert_eq!(rig::calls(), calls, "{name}: the driver is called again");
        rig::reset_sticky();
    }
    Ok(())
}

/// A lost device is refused immediately, whether or not the context for cudarc was created before.
fn lost_for_cudarc() -> Outcome {
    for asked_before in [true, false] {
        let device = device()?; // opened again
        if asked_before {
            device.backend().cudarc()?;
        }
        let told = refused_fill(device, Code::CUDA_ERROR_LAUNCH_FAILED as i32);
        let calls = rig::calls();
        assert_eq!(device.backend().cudarc().err(), Some(told));
        let stream = accelerator_cuda::cudarc_stream(device.default_stream());
        assert_eq!(stream.err(), Some(told));
        assert_eq!(rig::calls(), calls, "the driver is called again");
        rig::reset_sticky();
    }
    Ok(())
}

/// Errors that affect only one call lose nothing, and are reported with CUDA's names.
fn other_errors() -> Outcome {
    use DriverErrorKind as Kind;

    let codes = [
        (Code::CUDA_ERROR_INVALID_VALUE, Kind::InvalidArgument),
        (Code::CUDA_ERROR_OUT_OF_MEMORY, Kind::OutOfMemory),
        (Code::CUDA_ERROR_STUB_LIBRARY, Kind::Other),
        (Code::CUDA_ERROR_INVALID_DEVICE, Kind::InvalidArgument),
        (Code::CUDA_ERROR_INVALID_CONTEXT, Kind::InvalidArgument),
        (Code::CUDA_ERROR_INVALID_HANDLE, Kind::InvalidArgument),
        (Code::CUDA_ERROR_ILLEGAL_STATE, Kind::InvalidArgument),
        (Code::CUDA_ERROR_CONTEXT_IS_DESTROYED, Kind::InvalidArgument), // which its other calls do not say
        (Code::CUDA_ERROR_TOO_MANY_PEERS, Kind::Other),
        (Code::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, Kind::Other), // between sticky codes
        (Code::CUDA_ERROR_NOT_PERMITTED, Kind::Other),
        (Code::CUDA_ERROR_NOT_SUPPORTED, Kind::Unsupported),
        (Code::CUDA_ERROR_SYSTEM_NOT_READY, Kind::Other),
        (Code::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, Kind::Other),
        (Code::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, Kind::Other),
        (Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Kind::InvalidArgument),
        (Code::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, Kind::InvalidArgument),
        (Code::CUDA_ERROR_TIMEOUT, Kind::Other),
        (Code::CUDA_ERROR_UNKNOWN, Kind::Other),
    ];
    let device = device()?;
    for (code, kind) in codes {
        let told = refused_fill(device, code as i32);
        assert_eq!((told.kind, told.code, told.name), (kind, code as i64, &*format!("{code:?}")));
        device.synchronize()?;
    }
    check_all_gone(device)
}
