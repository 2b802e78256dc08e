//! Memory of the device.

use accelerator_core::DevicePtr;
use cudarc::driver::sys::CUdeviceptr;

/// An address of a CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaPtr(CUdeviceptr);

impl CudaPtr {
    /// An address that another library has, as one end of a copy or fill.
    pub fn from_native(address: CUdeviceptr) -> Self {
        Self(address)
    }

    /// The address, for other libraries.
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
