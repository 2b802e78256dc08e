//! Address space and memory, separately.
#![allow(unsafe_code)] // calls the driver

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uchar, c_uint, c_void};
use std::num::NonZeroU64;
use std::ptr;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{FailedMappings, byte_count, lock, try_twice};
use accelerator_core::{DriverResult, Pages, VirtualMemory};
use cudarc::driver::sys::{
    CUdevice, CUdevice_attribute as Attribute, CUdeviceptr, CUmemAccess_flags as Flag,
    CUmemAllocationGranularity_flags as Granularity, CUmemAllocationType as Kind, CUmemLocationType as LocationType,
};

use crate::calls::call;
use crate::context::Context;
use crate::devices;
use crate::memory::CudaPtr;

/// How memory is exported: as a file descriptor.
pub(crate) const FILE: c_uint = 1; // `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`

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
    properties: Properties,
    shared: Mutex<Shared>,
    left: FailedMappings,
}

/// The mappings, and the other devices that may access them.
#[derive(Debug, Default)]
struct Shared {
    peers: Vec<CUdevice>,
    /// Lengths, by start.
    mapped: BTreeMap<CUdeviceptr, usize>,
}

// SAFETY: The pointer in the properties is null.
unsafe impl Send for Pager {}
// SAFETY: As for `Send`.
unsafe impl Sync for Pager {}

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
        let (granularity, shared, left) = (NonZeroU64::new(granularity as u64)?, Mutex::default(), <_>::default());
        Some(Self { context: Arc::clone(context), granularity, properties, shared, left })
    }

    /// Whether memory can be exported as file descriptors.
    #[cfg(target_os = "linux")]
    pub(crate) fn makes_files(&self) -> bool {
        self.properties.exported_as == FILE
    }

    /// Lets another device access all memory that is mapped here, now and later.
    pub(crate) fn admit(&self, peer: CUdevice) -> DriverResult<()> {
        let mut shared = lock(&self.shared);
        shared.peers.push(peer);
        let mapped: Vec<_> = shared.mapped.iter().map(|(start, len)| (*start, *len)).collect();
        drop(shared);
        let failed = mapped.into_iter().filter_map(|(start, len)| Some((start, self.open(start, len, &[peer]).err()?)));
        // Another thread may have unmapped it meanwhile.
        let mut failed = failed.filter(|(start, _)| lock(&self.shared).mapped.contains_key(start));
        let admitted = failed.try_for_each(|(_, error)| Err(error));
        admitted.inspect_err(|_| lock(&self.shared).peers.retain(|other| *other != peer))
    }

    fn undo_left(&self, start: CUdeviceptr, len: NonZeroU64) -> DriverResult<()> {
        // SAFETY: What is left was never handed out.
        self.left.undo(start, len, |start, len| unsafe { self.unmap(CudaPtr::from_native(start), len) })
    }

    /// Lets devices access mapped memory.
    fn open(&self, start: CUdeviceptr, len: usize, devices: &[CUdevice]) -> DriverResult<()> {
        let flags = Flag::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as c_uint;
        let access: Vec<_> = devices.iter().map(|device| Access { location: location(*device), flags }).collect();
        // SAFETY: The driver checks the range. There are this many descriptions.
        let open = || unsafe { call!(cuMemSetAccess(start, len, access.as_ptr(), access.len())) };
        let is_own = devices == [self.context.device];
        // If another device is lost, this one need not be: the next call shows it.
        self.context.run_beside_captures(|| if is_own { open().map(Ok) } else { Ok(open()) })?
    }
}

fn location(device: CUdevice) -> Location {
    Location { kind: LocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_uint, device }
}

/// Returns the properties of memory: it can be exported, and used by network cards, as far as the device permits.
fn properties(context: &Context) -> Properties {
    let has = |attribute| devices::attribute(context.device, attribute).is_ok_and(|has| has != 0);
    let exports = has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    let reaches_network = has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    let mut flags = [0; 8];
    flags[1] = c_uchar::from(reaches_network); // `gpuDirectRDMACapable`
    Properties {
        kind: Kind::CU_MEM_ALLOCATION_TYPE_PINNED as c_uint,
        exported_as: if exports { FILE } else { 0 },
        location: location(context.device),
        security: ptr::null_mut(),
        flags,
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
        let _ = self.undo_left(at.native(), len); // if it fails, the driver keeps the addresses
        let (at, len) = (at.native(), byte_count(len));
        // SAFETY: The caller releases a reservation of `reserve`, once, with nothing mapped in it.
        self.context.give_back(|| unsafe { call!(cuMemAddressFree(at, len)) });
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        let mut handle = 0;
        self.context.run_beside_captures(|| {
            // SAFETY: The properties are complete, and the call writes a handle.
            unsafe { call!(cuMemCreate(&mut handle, byte_count(len), &self.properties, 0)) }
        })?;
        Ok(Pages::new(handle, len))
    }

    unsafe fn destroy(&self, pages: Pages) {
        // SAFETY: The caller releases memory of `create`, once.
        self.context.give_back(|| unsafe { call!(cuMemRelease(pages.handle)) });
    }

    unsafe fn map(&self, at: CudaPtr, pages: &Pages) -> DriverResult<()> {
        let (start, len) = (at.native(), byte_count(pages.len));
        self.undo_left(start, pages.len)?;
        // SAFETY: The caller promises that the address range is free and fits the memory.
        self.context.run_beside_captures(|| unsafe { call!(cuMemMap(start, len, 0, pages.handle, 0)) })?;
        let mut devices = vec![self.context.device];
        devices.extend(&lock(&self.shared).peers);
        let mut opened = self.open(start, len, &devices);
        let mut shared = lock(&self.shared);
        shared.mapped.insert(start, len);
        let more: Vec<_> = shared.peers.iter().copied().filter(|peer| !devices.contains(peer)).collect();
        drop(shared);
        if opened.is_ok() && !more.is_empty() {
            opened = self.open(start, len, &more); // peers that were admitted meanwhile
        }
        opened.inspect_err(|_| {
            // SAFETY: The memory was just mapped, and nothing uses it yet.
            if !try_twice(|| unsafe { self.unmap(at, pages.len) }) {
                self.left.add(start, pages.len);
            }
        })
    }

    unsafe fn unmap(&self, at: CudaPtr, len: NonZeroU64) -> DriverResult<()> {
        // Before the driver does it, so that no peer is admitted to what is not there any more.
        lock(&self.shared).mapped.remove(&at.native());
        // SAFETY: The caller promises whole mappings that no work uses.
        let unmapped = self.context.run_beside_captures(|| unsafe { call!(cuMemUnmap(at.native(), byte_count(len))) });
        unmapped.inspect_err(|_| _ = lock(&self.shared).mapped.insert(at.native(), byte_count(len)))
    }
}
