//! The backend: a GPU's memory for `torch.cuda`, or the host's for tensors of the CPU.
#![allow(unsafe_code)] // streams of PyTorch

use std::ffi::c_void;

#[cfg(not(feature = "host"))]
use accelerator_core::{DriverError, DriverErrorKind};
use accelerator_core::{DriverResult, Stream};

use crate::devices::Device;

#[cfg(feature = "host")]
pub(crate) use accelerator_host::Host as Driver;

#[cfg(not(feature = "host"))]
pub(crate) use accelerator_cuda::Cuda as Driver;

/// Opens a device, whose context PyTorch uses by CUDA's runtime.
#[cfg(not(feature = "host"))]
pub(crate) fn open(ordinal: u32) -> DriverResult<Driver> {
    Driver::open_beside_runtime(ordinal)
}

/// Opens the host, whose memory forked children inherit: the workers of data loaders read the tensors of their parent.
#[cfg(feature = "host")]
pub(crate) fn open(ordinal: u32) -> DriverResult<Driver> {
    Driver::open_inherited(ordinal)
}

/// `cudaStreamLegacy`, the default stream by another name.
#[cfg(not(feature = "host"))]
const LEGACY: usize = 1;

/// Refuses a handle that names another stream on each thread, whose order this library cannot follow.
#[cfg(not(feature = "host"))]
pub(crate) fn check_handle(handle: *mut c_void) -> DriverResult<()> {
    /// `cudaStreamPerThread`
    const PER_THREAD: usize = 2;
    const EACH: &str = "cudaStreamPerThread is another stream on each thread: make a stream of its own, and use that";
    match handle.addr() {
        PER_THREAD => Err(DriverError::refused(DriverErrorKind::InvalidArgument, "a stream", EACH)),
        _ => Ok(()),
    }
}

/// Refuses streams of which the device can have no events.
#[cfg(not(feature = "host"))]
pub(crate) fn check(device: Device, handle: *mut c_void) -> DriverResult<()> {
    const OTHER: &str = "it is of another device or context: let a stream of this device wait for it, and use that one";
    check_handle(handle)?;
    // SAFETY: The caller's stream is alive, and is not the one of each thread.
    if handle.addr() <= LEGACY || unsafe { device.backend().owns(handle.cast()) }? {
        return Ok(());
    }
    Err(DriverError::refused(DriverErrorKind::InvalidArgument, "a stream", OTHER))
}

/// Waits for the work of a stream that [`check`] refuses.
#[cfg(not(feature = "host"))]
pub(crate) fn wait(device: Device, handle: *mut c_void) -> DriverResult<()> {
    // SAFETY: The caller's stream is alive.
    unsafe { device.backend().wait_for(handle.cast()) }
}

/// Makes one of PyTorch's streams a stream of the device.
#[cfg(not(feature = "host"))]
pub(crate) fn adopt(device: Device, handle: *mut c_void) -> Stream<Driver> {
    if handle.addr() <= LEGACY {
        return device.default_stream();
    }
    // SAFETY: `check` found it to be of the primary context. PyTorch's streams live as long as the process, and for
    // those that other libraries destroy, the driver answers that they are gone.
    let native = unsafe { device.backend().adopt(handle.cast()) };
    // SAFETY: As above.
    unsafe { device.external_stream(native) }
}

/// Returns PyTorch's handle of a stream that is not the default one.
#[cfg(not(feature = "host"))]
pub(crate) fn handle(stream: Stream<Driver>) -> usize {
    stream.native().native().addr()
}

/// Lets kernels of a device access the memory of another one, if the machine supports that.
#[cfg(not(feature = "host"))]
pub(crate) fn enable_peer_access(device: Device, peer: Device) -> DriverResult<()> {
    device.backend().enable_peer_access(peer.backend()).map(drop)
}

/// All threads of the host access all of its memory.
#[cfg(feature = "host")]
pub(crate) fn enable_peer_access(_: Device, _: Device) -> DriverResult<()> {
    Ok(())
}

/// Tensors of the CPU have no streams.
#[cfg(feature = "host")]
pub(crate) fn check_handle(_: *mut c_void) -> DriverResult<()> {
    Ok(())
}

#[cfg(feature = "host")]
pub(crate) fn check(_: Device, _: *mut c_void) -> DriverResult<()> {
    Ok(())
}

#[cfg(feature = "host")]
pub(crate) fn wait(_: Device, _: *mut c_void) -> DriverResult<()> {
    Ok(())
}

#[cfg(feature = "host")]
pub(crate) fn adopt(device: Device, _: *mut c_void) -> Stream<Driver> {
    device.default_stream()
}

#[cfg(feature = "host")]
pub(crate) fn handle(_: Stream<Driver>) -> usize {
    0
}
