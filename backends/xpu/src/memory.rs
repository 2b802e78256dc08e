//! Device memory.

use std::ffi::c_void;
use std::ptr;

use accelerator_core::DevicePtr;

/// An address in memory that Level Zero allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XpuPtr(u64);

impl XpuPtr {
    /// Wraps an address from another library, to be used as one end of a copy or fill.
    pub fn from_native(address: *mut c_void) -> Self {
        Self(address.expose_provenance() as u64)
    }

    /// Returns the address, for other libraries and kernel arguments.
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
