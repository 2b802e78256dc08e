//! Virtual memory, as the driver API defines it.

use sim_engine::granular;

use crate::code::{Code, Outcome};
use crate::state::Driver;

/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`
const NONE: u32 = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`
const READ: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: u32 = 3;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const ON_DEVICE: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(crate) const FILE: u32 = 1;
/// The place of `gpuDirectRDMACapable` in the flags.
const NETWORK: usize = 1;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    /// `CUmemLocationType`
    pub kind: u32,
    /// The device.
    pub id: i32,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// `CUmemAllocationType`
    pub kind: u32,
    /// `CUmemAllocationHandleType`
    pub handle_types: u32,
    /// Where the memory is.
    pub location: Location,
    /// Ignored.
    pub windows: usize,
    /// `CUmemAllocationProp::allocFlags`, of which the second counts, `gpuDirectRDMACapable`.
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The device that gets access.
    pub location: Location,
    /// `CUmemAccess_flags`
    pub flags: u32,
}

impl Driver {
    pub(crate) fn create_physical(&mut self, bytes: u64, properties: Properties) -> Outcome<u64> {
        granular(bytes)?;
        let device = self.check_properties(properties)?;
        let handle = self.engine.create_physical(device, bytes)?;
        if properties.handle_types == FILE {
            self.exportable.insert(handle);
        }
        Ok(handle)
    }

    /// Returns the device that the properties request.
    pub(crate) fn check_properties(&self, properties: Properties) -> Outcome<usize> {
        if properties.kind != PINNED || properties.location.kind != ON_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        match (properties.handle_types, properties.flags[NETWORK]) {
            (0, 0) => {}
            (0 | FILE, 0 | 1) if !self.settings.exports => return Err(Code::NOT_SUPPORTED),
            (0 | FILE, 0 | 1) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        self.device(properties.location.id)
    }

    /// Maps a whole physical allocation. The driver API has parameters for a part of one, but rejects parts.
    pub(crate) fn map_whole(&mut self, address: u64, bytes: u64, offset: u64, handle: u64) -> Outcome {
        let memory = &mut self.engine.virtual_memory;
        let whole = memory.physical(handle).ok_or(Code::INVALID_VALUE)?.bytes();
        if offset != 0 || bytes != whole {
            return Err(Code::NOT_SUPPORTED);
        }
        Ok(memory.map(address, bytes, offset, handle)?)
    }

    pub(crate) fn set_access(&mut self, address: u64, bytes: u64, access: Access) -> Outcome {
        let device = self.device(access.location.id)?;
        let permitted = match access.flags {
            NONE => sim_engine::Access::None,
            READ => sim_engine::Access::Read,
            READ_WRITE => sim_engine::Access::ReadWrite,
            _ => return Err(Code::INVALID_VALUE),
        };
        if access.location.kind != ON_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        Ok(self.engine.virtual_memory.set_access(address, bytes, device, permitted)?)
    }
}
