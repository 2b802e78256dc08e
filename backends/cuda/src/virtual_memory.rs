//! Address space and memory, separately.
#![allow(unsafe_code)] // calls the driver

use std::ffi::{c_int, c_uchar, c_uint, c_void};
use std::num::NonZeroU64;
use std::ptr;
use std::sync::Arc;

use accelerator_core::backend_kit::byte_count;
use accelerator_core::{DriverResult, Pages, VirtualMemory};
use cudarc::driver::sys::{
    CUdevice_attribute as Attribute, CUmemAccess_flags as Flag, CUmemAllocationGranularity_flags as Granularity,
    CUmemAllocationType as Kind, CUmemLocationType as LocationType,
};

use crate::calls::call;
use crate::context::Context;
use crate::devices;
use crate::memory::CudaPtr;

/// CUDA's `CUmemLocation`, whose definition differs between versions of the bindings.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_uint,
    device: c_int,
}

/// CUDA's `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Properties {
    kind: c_uint,
    exported_as: c_uint,
    location: Location,
    security: *mut c_void,
    flags: [c_uchar; 8],
}

/// CUDA's `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Access {
    location: Location,
    flags: c_uint,
}

/// Maps memory of one device.
#[derive(Debug)]
pub(crate) struct Pager {
    context: Arc<Context>,
    granularity: NonZeroU64,
}

impl Pager {
    /// Returns `None` if the device or its driver does not support virtual memory.
    pub(crate) fn new(context: &Arc<Context>) -> Option<Self> {
        let supported = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED;
        devices::attribute(context.device, supported).ok().filter(|supported| *supported != 0)?;
        let (mut granularity, properties) = (0, properties(context));
        let option = Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM as c_uint;
        // SAFETY: The properties are complete, and the call writes a number.
        let asked =
            context.run(|| unsafe { call!(cuMemGetAllocationGranularity(&mut granularity, &properties, option)) });
        asked.ok()?;
        Some(Self { context: Arc::clone(context), granularity: NonZeroU64::new(granularity as u64)? })
    }
}

fn location(context: &Context) -> Location {
    Location { kind: LocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_uint, device: context.device }
}

fn properties(context: &Context) -> Properties {
    Properties {
        kind: Kind::CU_MEM_ALLOCATION_TYPE_PINNED as c_uint,
        exported_as: 0,
        location: location(context),
        security: ptr::null_mut(),
        flags: [0; 8],
    }
}

// SAFETY: The driver gives each reservation its own addresses; any work may use memory that is mapped with access.
unsafe impl VirtualMemory<CudaPtr> for Pager {
    fn granularity(&self) -> NonZeroU64 {
        self.granularity
    }

    fn maps_twice(&self) -> bool {
        true
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<CudaPtr> {
        let (mut at, len) = (0, byte_count(len));
        // SAFETY: The call writes an address.
        self.context.run_beside_captures(|| unsafe { call!(cuMemAddressReserve(&mut at, len, 0, 0, 0)) })?;
        Ok(CudaPtr::from_native(at))
    }

    unsafe fn release(&self, at: CudaPtr, len: NonZeroU64) {
        let (at, len) = (at.native(), byte_count(len));
        // SAFETY: The caller releases a reservation of `reserve`, once, with nothing mapped in it.
        self.context.give_back(|| unsafe { call!(cuMemAddressFree(at, len)) });
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        let (mut handle, properties) = (0, properties(&self.context));
        self.context.run_beside_captures(|| {
            // SAFETY: The properties are complete, and the call writes a handle.
            unsafe { call!(cuMemCreate(&mut handle, byte_count(len), &properties, 0)) }
        })?;
        Ok(Pages::new(handle, len))
    }

    unsafe fn destroy(&self, pages: Pages) {
        // SAFETY: The caller releases memory of `create`, once.
        self.context.give_back(|| unsafe { call!(cuMemRelease(pages.handle)) });
    }

    unsafe fn map(&self, at: CudaPtr, pages: &Pages) -> DriverResult<()> {
        let (start, len) = (at.native(), byte_count(pages.len));
        let flags = Flag::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as c_uint;
        let access = Access { location: location(&self.context), flags };
        self.context.run_beside_captures(|| {
            // SAFETY: The caller promises that the address range is free and fits the memory.
            unsafe { call!(cuMemMap(start, len, 0, pages.handle, 0)) }?;
            // SAFETY: The memory was just mapped, and there is one description.
            let opened = unsafe { call!(cuMemSetAccess(start, len, &access, 1)) };
            opened.inspect_err(|_| {
                // SAFETY: The memory was just mapped, and nothing uses it yet.
                let _ = unsafe { call!(cuMemUnmap(start, len)) };
            })
        })
    }

    unsafe fn unmap(&self, at: CudaPtr, len: NonZeroU64) -> DriverResult<()> {
        // SAFETY: The caller promises whole mappings that no work uses.
        self.context.run_beside_captures(|| unsafe { call!(cuMemUnmap(at.native(), byte_count(len))) })
    }
}
