//! The backend: a GPU's memory for `torch.cuda`, or the host's for tensors of the CPU.
#![allow(unsafe_code)] // streams of PyTorch

use std::ffi::c_void;

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

/// Makes one of PyTorch's streams a stream of the device.
#[cfg(not(feature = "host"))]
pub(crate) fn adopt(device: Device, handle: *mut c_void) -> Stream<Driver> {
    /// `cudaStreamLegacy`, the default stream by another name.
    const LEGACY: usize = 1;
    if handle.addr() <= LEGACY {
        return device.default_stream();
    }
    // SAFETY: PyTorch's streams are of the primary context, and live as long as the process.
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
pub(crate) fn adopt(device: Device, _: *mut c_void) -> Stream<Driver> {
    device.default_stream()
}

#[cfg(feature = "host")]
pub(crate) fn handle(_: Stream<Driver>) -> usize {
    0
}
