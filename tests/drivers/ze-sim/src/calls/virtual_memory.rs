//! Virtual memory.

use std::ffi::c_void;

use level_zero_sys::*;

use crate::arguments::{Address, ContextHandle, DeviceHandle, PhysicalHandle, Place};
use crate::calls::memory::pointer;
use crate::gate::functions;
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::virtual_memory::{access_of, attribute_of, page_of};

functions! {
    /// Reserves addresses of the driver's choice. A requested address is ignored.
    fn zeVirtualMemReserve(
        context: ContextHandle,
        wish: Option<Address<*const c_void>>,
        bytes: usize,
        address: Place<'_, *mut c_void>,
    ) [Init] => reserve;
    /// Frees a whole reservation and unmaps what is mapped there.
    fn zeVirtualMemFree(context: ContextHandle, address: Address<*const c_void>, bytes: usize)
        [Init] => unreserve;
    /// Returns the page size for memory of a given size.
    fn zeVirtualMemQueryPageSize(
        context: ContextHandle,
        device: DeviceHandle,
        bytes: usize,
        page: Place<'_, usize>,
    )
        [Init] => page_size;
    /// Creates physical memory of a device.
    fn zePhysicalMemCreate(
        context: ContextHandle,
        device: DeviceHandle,
        desc: &mut ze_physical_mem_desc_t,
        physical: Place<'_, ze_physical_mem_handle_t>,
    ) [Init] => create_physical;
    /// Destroys physical memory. It is a violation while it is mapped.
    fn zePhysicalMemDestroy(context: ContextHandle, physical: PhysicalHandle) [Init] => destroy_physical;
    /// Maps a part of physical memory.
    fn zeVirtualMemMap(
        context: ContextHandle,
        address: Address<*const c_void>,
        bytes: usize,
        physical: PhysicalHandle,
        offset: usize,
        access: ze_memory_access_attribute_t,
    ) [Init] => map;
    /// Unmaps whole mappings immediately.
    fn zeVirtualMemUnmap(context: ContextHandle, address: Address<*const c_void>, bytes: usize)
        [Init] => unmap;
    /// Sets the access to whole mappings.
    fn zeVirtualMemSetAccessAttribute(
        context: ContextHandle,
        address: Address<*const c_void>,
        bytes: usize,
        access: ze_memory_access_attribute_t,
    ) [Init] => set_access;
    /// Returns the access at an address, and for how many bytes from there it applies.
    fn zeVirtualMemGetAccessAttribute(
        context: ContextHandle,
        address: Address<*const c_void>,
        bytes: usize,
        access: Place<'_, ze_memory_access_attribute_t>,
        out_bytes: Place<'_, usize>,
    ) [Init] => get_access;
}

fn reserve(
    session: &mut Session,
    context: ContextHandle,
    _: Option<Address<*const c_void>>,
    bytes: usize,
    address: Place<'_, *mut c_void>,
) -> Outcome {
    let context = session.context(context)?;
    address.put(pointer(session.reserve(context, bytes as u64)?));
    Ok(())
}

fn unreserve(session: &mut Session, context: ContextHandle, address: Address<*const c_void>, bytes: usize) -> Outcome {
    let context = session.context(context)?;
    session.unreserve(context, address.value, bytes as u64)
}

fn page_size(
    session: &mut Session,
    context: ContextHandle,
    device: DeviceHandle,
    bytes: usize,
    page: Place<'_, usize>,
) -> Outcome {
    session.context_on(context, device)?;
    if bytes == 0 {
        return Err(Refusal::UNSUPPORTED_SIZE);
    }
    page.put(page_of(bytes as u64) as usize);
    Ok(())
}

fn create_physical(
    session: &mut Session,
    context: ContextHandle,
    device: DeviceHandle,
    desc: &mut ze_physical_mem_desc_t,
    physical: Place<'_, ze_physical_mem_handle_t>,
) -> Outcome {
    let (context, device) = session.context_on(context, device)?;
    session.check_type(desc);
    let known_flags = 3;
    if desc.flags > known_flags {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    if desc.flags & ze_physical_mem_flag_t::ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST.0 != 0 {
        return Err(Refusal::UNSUPPORTED_FEATURE);
    }
    physical.put(session.create_physical(context, device, desc.size as u64)?.raw());
    Ok(())
}

fn destroy_physical(session: &mut Session, context: ContextHandle, physical: PhysicalHandle) -> Outcome {
    let context = session.context(context)?;
    session.destroy_physical(context, physical)
}

fn map(
    session: &mut Session,
    context: ContextHandle,
    address: Address<*const c_void>,
    bytes: usize,
    physical: PhysicalHandle,
    offset: usize,
    access: ze_memory_access_attribute_t,
) -> Outcome {
    let context = session.context(context)?;
    let access = access_of(access)?;
    session.map(context, (address.value, bytes as u64), physical, offset as u64, access)
}

fn unmap(session: &mut Session, context: ContextHandle, address: Address<*const c_void>, bytes: usize) -> Outcome {
    let context = session.context(context)?;
    session.unmap(context, address.value, bytes as u64)
}

fn set_access(
    session: &mut Session,
    context: ContextHandle,
    address: Address<*const c_void>,
    bytes: usize,
    access: ze_memory_access_attribute_t,
) -> Outcome {
    let context = session.context(context)?;
    session.set_access(context, address.value, bytes as u64, access_of(access)?)
}

fn get_access(
    session: &mut Session,
    context: ContextHandle,
    address: Address<*const c_void>,
    bytes: usize,
    access: Place<'_, ze_memory_access_attribute_t>,
    out_bytes: Place<'_, usize>,
) -> Outcome {
    let context = session.context(context)?;
    let (found, length) = session.access_at(context, address.value, bytes as u64)?;
    access.put(attribute_of(found));
    out_bytes.put(length as usize);
    Ok(())
}
