//! Work captured into a graph.
#![allow(unsafe_code)] // uses CUDA's capture functions directly

use std::ptr;

use accelerator_core::{MIB, PinnedBuffer, Stream};
use accelerator_cuda::Cuda;
use accelerator_cuda::cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode as Mode};
use libtest_mimic::Trial;

use crate::rig::{self, Device, Outcome, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("capture::is_seen", &[], is_seen),
        trial("capture::asks_about_no_event", &[], asks_about_no_event),
        trial("capture::allocates_beside_it", &[], allocates_beside_it),
        trial("capture::no_pinned_copies", &[], no_pinned_copies),
        trial("capture::asks_beside_it", &[("CUDA_SIM_MEMORY", "64M")], asks_beside_it),
    ]
}

fn begin(stream: Stream<Cuda>) {
    let mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: The stream is live.
    let begun = unsafe { sys::cuStreamBeginCapture_v2(stream.native().native(), mode) };
    assert_eq!(begun, CUresult::CUDA_SUCCESS);
}

/// Ends the capture, which must be intact.
fn end(stream: Stream<Cuda>) {
    let mut graph = ptr::null_mut();
    // SAFETY: The stream is live, and the call writes a handle.
    let ended = unsafe { sys::cuStreamEndCapture(stream.native().native(), &mut graph) };
    assert_eq!(ended, CUresult::CUDA_SUCCESS);
    // SAFETY: The graph was just created, and nothing uses it.
    unsafe { sys::cuGraphDestroy(graph) };
}

fn is_seen() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let capturing = |stream: Stream<Cuda>| stream.is_capturing();
    assert_eq!((capturing(stream)?, capturing(other)?), (false, false));
    begin(stream);
    assert_eq!((capturing(stream)?, capturing(other)?), (true, false));
    end(stream);
    assert_eq!((capturing(stream)?, capturing(device.default_stream())?), (false, false));

    let facade = accelerator::Stream::new(None)?;
    assert!(!facade.is_capturing()?);
    begin(facade.typed()?);
    assert!(facade.is_capturing()?);
    end(facade.typed()?);
    Ok(())
}

/// A block used by a capturing stream is reused after the capture. No events are queried meanwhile.
fn asks_about_no_event() -> Outcome {
    let device = device()?;
    let (own, capturing) = (device.stream(0)?, device.stream(0)?);
    let waiting = device.allocate(4 * MIB, own)?;
    let mut before = device.allocate(4 * MIB, own)?;
    before.fill(1, capturing)?;
    drop(before); // records an event, which is not queried yet

    begin(capturing);
    waiting.record_use(capturing)?;
    drop(waiting);
    let asked = rig::calls_of("cuEventQuery");
    let beside = device.allocate(MIB, capturing)?;
    assert_eq!(rig::calls_of("cuEventQuery"), asked);
    end(capturing);

    drop(beside);
    let active = || device.allocator().statistics().active_bytes.all.current;
    assert!(active() >= 8 * MIB as i64);
    capturing.synchronize()?;
    for _ in 0..2 {
        drop(device.allocate(512, own)?);
    }
    assert_eq!(active(), 0);
    check_all_gone(device)
}

/// Allocating from the driver breaks no capture of another stream, although the driver call alone would.
fn allocates_beside_it() -> Outcome {
    let device = device()?;
    let (capturing, other) = (device.stream(0)?, device.stream(0)?);
    let mut noted = device.allocate(MIB, capturing)?;
    begin(capturing);
    noted.fill(1, capturing)?;
    let taken = device.allocate(64 * MIB, other)?;
    let pinned = device.allocate_host(MIB)?;
    end(capturing);
    drop((noted, taken, pinned));
    check_all_gone(device)
}

/// Querying other streams and their events, or waiting for them, breaks no capture either.
fn asks_beside_it() -> Outcome {
    let device = device()?;
    let [capturing, own, user] = [0; 3].map(|priority| device.stream(priority).unwrap());
    let mut noted = device.allocate(MIB, capturing)?;
    let used = |len| -> Outcome {
        let mut buffer = device.allocate(len, own)?;
        buffer.fill(1, user)?;
        Ok(()) // and waits for `user`
    };
    used(MIB)?;
    begin(capturing);
    noted.fill(1, capturing)?;
    let asked = rig::calls_of("cuEventQuery");
    assert_eq!(rig::hold(user.native().native().expose_provenance()), 0);
    used(40 * MIB)?;
    assert!(rig::calls_of("cuEventQuery") > asked);
    let waited = rig::calls_of("cuEventSynchronize");
    let all = device.allocate(60 * MIB, own)?;
    assert!(rig::calls_of("cuEventSynchronize") > waited);
    let mut pinned = device.allocate_host(MIB)?;
    pinned.bytes_mut()?.fill(5);
    copied_and_waited_for(&mut pinned, device, user)?;
    end(capturing);
    drop((noted, all, pinned));
    check_all_gone(device)
}

/// A copy that the host waits for is complete when the call returns.
fn copied_and_waited_for(pinned: &mut PinnedBuffer<Cuda>, device: Device, stream: Stream<Cuda>) -> Outcome {
    let mut buffer = device.allocate(pinned.len(), stream)?;
    buffer.write(0, pinned.bytes()?, stream)?;
    pinned.bytes_mut()?.fill(0);
    buffer.read(0, pinned.bytes_mut()?, stream)?;
    assert!(pinned.bytes()?.iter().all(|byte| *byte == 5));
    assert!(stream.is_idle()?);
    Ok(())
}

/// A captured copy of pinned memory would run when the graph is launched, at a time that the backend cannot know.
fn no_pinned_copies() -> Outcome {
    let device = device()?;
    let (capturing, other) = (device.stream(0)?, device.stream(0)?);
    let mut buffer = device.allocate(MIB, other)?;
    let mut pinned = device.allocate_host(MIB)?;
    buffer.copy_from_pinned(0, &pinned, 0..MIB, other)?;
    begin(capturing);
    assert!(buffer.copy_from_pinned(0, &pinned, 0..MIB, capturing).is_err());
    assert!(buffer.copy_to_pinned(0..MIB, &mut pinned, 0, capturing).is_err());
    end(capturing);
    buffer.copy_to_pinned(0..MIB, &mut pinned, 0, capturing)?;
    drop((buffer, pinned));
    check_all_gone(device)
}
