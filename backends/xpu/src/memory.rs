//! Memory of the device.

use std::ffi::c_void;
use std::ptr;

use accelerator_core::DevicePtr;

/// An address of memory that Level Zero gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XpuPtr(u64);

impl XpuPtr {
    /// An address that another library has, as one end of a copy or fill.
    pub fn from_native(address: *mut c_void) -> Self {
        Self(address.expose_provenance() as u64)
    }

    /// The address, for other libraries and arguments of kernels.
    pub fn native(self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.0 as usize)
    }
}

impl DevicePtr for XpuPtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}
