//! Captures of other libraries' streams, which the backend must not disturb.
#![allow(unsafe_code)] // uses CUDA's capture functions directly

use std::ptr;

use accelerator_core::{Backend, MIB, StreamKind};
use accelerator_cuda::cudarc::driver::sys::{
    self, CUresult as Code, CUstream, CUstream_flags as Flag, CUstreamCaptureMode as Mode,
};
use libtest_mimic::Trial;

use crate::rig::{self, Device, Outcome, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("beside::a_blocking_stream_under_capture", &[], blocking_stream),
        trial("beside::gives_memory_back", &[], gives_memory_back),
        trial("beside::the_mode_of_the_thread_stays", &[("CUDA_SIM_MEMORY", "64M")], mode_stays),
    ]
}

/// Captures a new stream of this kind while `work` runs. Nothing in `work` may break the capture.
fn under_capture(flag: Flag, work: impl FnOnce() -> Outcome) -> Outcome {
    let mut stream: CUstream = ptr::null_mut();
    // SAFETY: The call writes a handle.
    assert_eq!(unsafe { sys::cuStreamCreate(&mut stream, flag as u32) }, Code::CUDA_SUCCESS);
    let mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: The stream is live.
    assert_eq!(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }, Code::CUDA_SUCCESS);
    work()?;
    let mut graph = ptr::null_mut();
    // SAFETY: The stream is live, and the call writes a handle.
    assert_eq!(unsafe { sys::cuStreamEndCapture(stream, &mut graph) }, Code::CUDA_SUCCESS);
    // SAFETY: The graph was just created, and nothing uses it.
    assert_eq!(unsafe { sys::cuGraphDestroy(graph) }, Code::CUDA_SUCCESS);
    // SAFETY: Nothing uses it any more.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(stream) }, Code::CUDA_SUCCESS);
    Ok(())
}

/// The legacy stream is tied to capturing blocking streams, so it counts as capturing as well.
fn blocking_stream() -> Outcome {
    let device = device()?;
    let capturing = || device.backend().is_capturing(device.default_stream().native());
    assert!(!capturing()?);
    under_capture(Flag::CU_STREAM_DEFAULT, || {
        assert!(capturing()?);
        let own = device.stream(0)?;
        assert!(!device.backend().is_capturing(own.native())?);
        Ok(())
    })?;
    under_capture(Flag::CU_STREAM_NON_BLOCKING, || {
        assert!(!capturing()?);
        Ok(())
    })?;
    assert!(!capturing()?);
    Ok(())
}

fn gives_memory_back() -> Outcome {
    let device = device()?;
    let (buffer, pinned) = (device.allocate(64 * MIB, device.stream(0)?)?, device.allocate_host(MIB)?);
    drop((buffer, pinned));
    assert_eq!((rig::live_allocations(), rig::live_pinned()), (1, 1));
    under_capture(Flag::CU_STREAM_NON_BLOCKING, || {
        device.allocator().empty_cache()?;
        device.host_allocator().empty_cache()?;
        assert_eq!((rig::live_allocations(), rig::live_pinned()), (0, 0));
        Ok(())
    })?;
    check_all_gone(device)
}

/// Sets the thread's mode and returns the previous one.
fn exchanged(mode: Mode) -> Mode {
    let mut mode = mode;
    // SAFETY: The call reads and writes a mode.
    assert_eq!(unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }, Code::CUDA_SUCCESS);
    mode
}

/// The rest of the program on this thread keeps its capture mode, whether the backend's calls succeed or not.
fn mode_stays() -> Outcome {
    let device = device()?;
    let modes = [Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL];
    for mode in modes {
        let own = exchanged(mode);
        for work in [allocates, waits, is_refused, gives_back] {
            work(device)?;
            assert_eq!(exchanged(mode), mode);
        }
        exchanged(own);
    }
    check_all_gone(device)
}

fn allocates(device: Device) -> Outcome {
    drop((device.allocate(8 * MIB, device.default_stream())?, device.allocate_host(MIB)?));
    Ok(())
}

fn waits(device: Device) -> Outcome {
    let backend = device.backend();
    let (stream, event) = (backend.stream(StreamKind::Default)?, backend.event(Default::default())?);
    backend.record(&event, &stream)?;
    backend.is_complete(&event)?;
    backend.wait_host(&event)?;
    backend.is_idle(&stream)?;
    backend.synchronize(&stream)?;
    Ok(())
}

fn is_refused(device: Device) -> Outcome {
    assert!(device.allocate(100 * MIB, device.default_stream()).is_err());
    rig::fail("cuMemHostAlloc", 1, 1);
    assert!(device.allocate_host(16 * MIB).is_err());
    Ok(())
}

fn gives_back(device: Device) -> Outcome {
    rig::give_back(device)
}
