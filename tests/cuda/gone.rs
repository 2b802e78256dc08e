//! Streams that another library destroys although they are in use here.
#![allow(unsafe_code)] // calls the driver directly

use std::ptr;

use accelerator_core::{DriverErrorKind, Error, MIB, Stream};
use accelerator_cuda::Cuda;
use accelerator_cuda::cudarc::driver::sys::{self, CUresult as Code, CUstream, CUstreamCaptureMode as Mode};
use libtest_mimic::Trial;

use crate::rig::{self, Device, Outcome, check_all_gone, device, trial};

/// What calls about a destroyed stream return.
const CODES: [[(&str, &str); 1]; 3] = [
    [("CUDA_SIM_DESTROYED_STREAM", "400")],
    [("CUDA_SIM_DESTROYED_STREAM", "709")],
    [("CUDA_SIM_DESTROYED_STREAM", "917")],
];

pub(crate) fn trials() -> Vec<Trial> {
    let of_each = CODES.iter().flat_map(|variables| {
        let [(_, code)] = variables;
        [
            trial(format!("gone::a_destroyed_stream_loses_no_device_{code}"), variables, destroyed),
            trial(format!("gone::a_destroyed_stream_breaks_no_capture_{code}"), variables, beside_a_capture),
        ]
    });
    of_each.chain([trial("gone::a_destroyed_context_loses_the_device", &[], destroyed_context)]).collect()
}

/// Makes a stream as another library does.
fn adopted(device: Device) -> Stream<Cuda> {
    let mut stream: CUstream = ptr::null_mut();
    // SAFETY: The call writes a handle.
    assert_eq!(unsafe { sys::cuStreamCreate(&mut stream, 1) }, Code::CUDA_SUCCESS);
    // SAFETY: The stream is of this context. This driver tells that it is destroyed.
    let native = unsafe { device.backend().adopt(stream) };
    // SAFETY: As above.
    unsafe { device.external_stream(native) }
}

/// Uses memory on a new stream, which is destroyed before it gets there.
fn used_by_a_destroyed_one(device: Device) -> Result<(accelerator_core::Buffer<Cuda>, Stream<Cuda>), Error> {
    let (mut buffer, stream) = (device.allocate(5 * MIB, device.default_stream())?, adopted(device));
    rig::hold(stream.native().native().expose_provenance());
    buffer.fill(1, stream)?;
    // SAFETY: It is called once. The driver does the stream's work first.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(stream.native().native()) }, Code::CUDA_SUCCESS);
    Ok((buffer, stream))
}

fn destroyed() -> Outcome {
    let device = device()?;
    let (buffer, stream) = used_by_a_destroyed_one(device)?;
    assert!(!stream.is_capturing()?);
    drop(buffer);
    // Its work is over when the memory is used again: otherwise it would overwrite these bytes.
    let mut again = device.allocate(5 * MIB, device.default_stream())?;
    again.fill(2, device.default_stream())?;
    let mut bytes = [0; 1000];
    again.read(0, &mut bytes, device.default_stream())?;
    device.synchronize()?;
    assert!(bytes.iter().all(|byte| *byte == 2));
    let memory = device.memory_info()?;
    stream.synchronize()?;
    assert!(stream.is_idle()?);
    assert_eq!(device.memory_info()?, memory, "the device is not lost");
    drop(again);
    check_all_gone(device)
}

fn beside_a_capture() -> Outcome {
    let device = device()?;
    let (buffer, stream) = used_by_a_destroyed_one(device)?;
    let captured = adopted(device);
    // SAFETY: The stream is alive.
    let begun =
        unsafe { sys::cuStreamBeginCapture_v2(captured.native().native(), Mode::CU_STREAM_CAPTURE_MODE_RELAXED) };
    assert_eq!(begun, Code::CUDA_SUCCESS);
    drop(buffer);
    let active = || device.allocator().statistics().active_bytes.all.current;
    drop(device.allocate(5 * MIB, device.default_stream())?);
    assert!(stream.synchronize().is_err());
    assert_eq!(active(), 5 * MIB as i64, "the stream may still use the memory");
    let mut graph = ptr::null_mut();
    // SAFETY: The stream is alive, and the call writes a handle.
    assert_eq!(unsafe { sys::cuStreamEndCapture(captured.native().native(), &mut graph) }, Code::CUDA_SUCCESS);
    // SAFETY: The graph was just made, and nothing uses it.
    assert_eq!(unsafe { sys::cuGraphDestroy(graph) }, Code::CUDA_SUCCESS);
    drop(device.allocate(5 * MIB, device.default_stream())?);
    assert_eq!(active(), 0);
    // SAFETY: It is called once, and nothing uses the stream any more.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(captured.native().native()) }, Code::CUDA_SUCCESS);
    check_all_gone(device)
}

fn destroyed_context() -> Outcome {
    let device = device()?;
    let mut buffer = device.allocate(100, device.default_stream())?;
    ["cuMemsetD8Async", "cuMemGetInfo_v2"].iter().for_each(|call| rig::fail(call, 1, 709));
    let Err(Error::Driver { source, .. }) = buffer.fill(0, device.default_stream()) else {
        return Err("the fill was not refused".into());
    };
    assert_eq!((source.kind, source.code, source.call), (DriverErrorKind::DeviceLost, 709, "cuMemsetD8Async"));
    let calls = rig::calls();
    assert_eq!(accelerator_core::Backend::memory_info(device.backend()).err(), Some(source));
    assert_eq!(rig::calls(), calls, "the driver is called again");
    Ok(())
}
