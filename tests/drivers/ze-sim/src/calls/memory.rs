//! Memory.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};

use level_zero_sys::*;

use crate::arguments::{Address, ContextHandle, DeviceHandle, Place};
use crate::gate::functions;
use crate::memory::{self, Request};
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::structures::{find, find_mut};

functions! {
    /// Allocates memory of a device, or opens that of another process from a file, which it then closes.
    fn zeMemAllocDevice(
        context: ContextHandle,
        desc: &ze_device_mem_alloc_desc_t,
        bytes: usize,
        alignment: usize,
        device: DeviceHandle,
        address: Place<'_, *mut c_void>,
    ) [Init] => allocate_device;
    /// Allocates host memory that devices see.
    fn zeMemAllocHost(
        context: ContextHandle,
        desc: &ze_host_mem_alloc_desc_t,
        bytes: usize,
        alignment: usize,
        address: Place<'_, *mut c_void>,
    ) [Init] => allocate_host;
    /// Allocates memory shared by host and device.
    fn zeMemAllocShared(
        context: ContextHandle,
        device_desc: &ze_device_mem_alloc_desc_t,
        host_desc: &ze_host_mem_alloc_desc_t,
        bytes: usize,
        alignment: usize,
        device: Option<DeviceHandle>,
        address: Place<'_, *mut c_void>,
    ) [Init] => allocate_shared;
    /// Frees memory immediately. It is a violation if submitted work still needs it.
    fn zeMemFree(context: ContextHandle, address: Address<*mut c_void>) [Init] => free;
    /// Returns the kind of memory at an address, its device, and a file with it.
    fn zeMemGetAllocProperties(
        context: ContextHandle,
        address: Address<*const c_void>,
        properties: &mut ze_memory_allocation_properties_t,
        device: Option<Place<'_, ze_device_handle_t>>,
    ) [Init] => properties;
    /// Returns the start and the size of the memory that contains an address.
    fn zeMemGetAddressRange(
        context: ContextHandle,
        address: Address<*const c_void>,
        start: Option<Place<'_, *mut c_void>>,
        bytes: Option<Place<'_, usize>>,
    ) [Init] => range;
}

const KNOWN_DEVICE_FLAGS: u32 = 7;
const KNOWN_HOST_FLAGS: u32 = 0x1f;

/// Converts an address to a C pointer.
pub(crate) fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Whether a chain of descriptors lifts the limit on one allocation.
///
/// # Safety
///
/// * As for [`find`].
unsafe fn is_unlimited(chain: *const c_void) -> bool {
    let flag = ze_relaxed_allocation_limits_exp_flag_t::ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE.0;
    // SAFETY: as the caller promises.
    let limits = unsafe { find::<ze_relaxed_allocation_limits_exp_desc_t>(chain) };
    limits.is_some_and(|limits| limits.flags & flag != 0)
}

fn check_device_desc(session: &mut Session, desc: &ze_device_mem_alloc_desc_t) -> Outcome {
    session.check_type(desc);
    if desc.flags & !KNOWN_DEVICE_FLAGS != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    // Only memory 0 exists.
    if desc.ordinal == 0 { Ok(()) } else { Err(Refusal::INVALID_ARGUMENT) }
}

fn check_host_desc(session: &mut Session, desc: &ze_host_mem_alloc_desc_t) -> Outcome {
    session.check_type(desc);
    if desc.flags & !KNOWN_HOST_FLAGS != 0 { Err(Refusal::INVALID_ENUMERATION) } else { Ok(()) }
}

fn allocate_device(
    session: &mut Session,
    context: ContextHandle,
    desc: &ze_device_mem_alloc_desc_t,
    bytes: usize,
    alignment: usize,
    device: DeviceHandle,
    address: Place<'_, *mut c_void>,
) -> Outcome {
    let (context, device) = session.context_on(context, device)?;
    check_device_desc(session, desc)?;
    // SAFETY: the caller's descriptor starts a valid chain.
    let unlimited = unsafe { is_unlimited(desc.pNext) };
    // SAFETY: as above.
    let export = unsafe { find::<ze_external_memory_export_desc_t>(desc.pNext) };
    export.map_or(Ok(()), |export| session.check_kind(export.flags))?;
    let request = Request { context, bytes, alignment, unlimited, exportable: export.is_some() };
    // SAFETY: as above.
    if let Some(import) = unsafe { find::<ze_external_memory_import_fd_t>(desc.pNext) } {
        session.check_kind(import.flags)?;
        address.put(pointer(session.import_memory(&request, device, import.fd)?));
        // SAFETY: the caller passes its file on to a driver that opens it.
        drop(unsafe { OwnedFd::from_raw_fd(import.fd) });
        return Ok(());
    }
    address.put(pointer(session.allocate_device(&request, device)?));
    Ok(())
}

fn allocate_host(
    session: &mut Session,
    context: ContextHandle,
    desc: &ze_host_mem_alloc_desc_t,
    bytes: usize,
    alignment: usize,
    address: Place<'_, *mut c_void>,
) -> Outcome {
    let context = session.context(context)?;
    check_host_desc(session, desc)?;
    // SAFETY: the caller's descriptor starts a valid chain.
    let unlimited = unsafe { is_unlimited(desc.pNext) };
    let request = Request { context, bytes, alignment, unlimited, exportable: false };
    let kind = ze_memory_type_t::ZE_MEMORY_TYPE_HOST;
    address.put(pointer(session.allocate_host(&request, kind, None)?));
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "those of the API")]
fn allocate_shared(
    session: &mut Session,
    context: ContextHandle,
    device_desc: &ze_device_mem_alloc_desc_t,
    host_desc: &ze_host_mem_alloc_desc_t,
    bytes: usize,
    alignment: usize,
    device: Option<DeviceHandle>,
    address: Place<'_, *mut c_void>,
) -> Outcome {
    let device = match device {
        Some(device) => Some(session.context_on(context, device)?.1),
        None => None,
    };
    let context = session.context(context)?;
    check_device_desc(session, device_desc)?;
    check_host_desc(session, host_desc)?;
    // SAFETY: the caller's descriptor starts a valid chain.
    let unlimited = unsafe { is_unlimited(device_desc.pNext) };
    let request = Request { context, bytes, alignment, unlimited, exportable: false };
    let kind = ze_memory_type_t::ZE_MEMORY_TYPE_SHARED;
    address.put(pointer(session.allocate_host(&request, kind, device)?));
    Ok(())
}

fn free(session: &mut Session, context: ContextHandle, address: Address<*mut c_void>) -> Outcome {
    let context = session.context(context)?;
    memory::free(session, context, address.value)
}

fn properties(
    session: &mut Session,
    context: ContextHandle,
    address: Address<*const c_void>,
    properties: &mut ze_memory_allocation_properties_t,
    device: Option<Place<'_, ze_device_handle_t>>,
) -> Outcome {
    let context = session.context(context)?;
    session.check_type(properties);
    let found = session.find_memory(address.value).filter(|found| found.context == context);
    let owner = found.as_ref().and_then(|found| session.devices.get(found.device?));
    let owner = owner.map_or(std::ptr::null_mut(), |owner| DeviceHandle::new(owner.handle).raw());
    properties.type_ = found.as_ref().map_or(ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN, |found| found.kind);
    properties.id = found.as_ref().map_or(0, |found| found.start);
    properties.pageSize = found.map_or(0, |found| found.page);
    // SAFETY: the caller's structure starts a valid chain.
    if let Some(file) = unsafe { find_mut::<ze_external_memory_export_fd_t>(properties.pNext) } {
        session.check_kind(file.flags)?;
        file.fd = session.export_memory(address.value)?;
    }
    if let Some(device) = device {
        device.put(owner);
    }
    Ok(())
}

fn range(
    session: &mut Session,
    context: ContextHandle,
    address: Address<*const c_void>,
    start: Option<Place<'_, *mut c_void>>,
    bytes: Option<Place<'_, usize>>,
) -> Outcome {
    let context = session.context(context)?;
    let found = session.find_memory(address.value).filter(|found| found.context == context);
    let found = found.ok_or(Refusal::ADDRESS_NOT_FOUND)?;
    if let Some(start) = start {
        start.put(pointer(found.start));
    }
    if let Some(bytes) = bytes {
        bytes.put(found.bytes as usize);
    }
    Ok(())
}
