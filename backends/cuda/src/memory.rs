//! Device memory.

use accelerator_core::DevicePtr;
use cudarc::driver::sys::CUdeviceptr;

/// An address in the memory of a CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaPtr(CUdeviceptr);

impl CudaPtr {
    /// Wraps an address from another library, to be used as one end of a copy or fill.
    pub fn from_native(address: CUdeviceptr) -> Self {
        Self(address)
    }

    /// Returns the address, for other libraries.
    pub fn native(self) -> CUdeviceptr {
        self.0
    }
}

impl DevicePtr for CudaPtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}

/// CUDA's `CUipcMemHandle`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems share no memory"))]
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Handle(pub(crate) [u8; 64]);
