//! Virtual memory.

use sim_engine::GRANULARITY;
use sim_engine::out::Out;

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::state::Session;
use crate::virtual_memory::{Access, Properties};

exports! { newer:
    /// Reserves addresses, at which nothing is mapped yet. A requested address is ignored.
    fn cuMemAddressReserve(address: Out<'_, u64>, bytes: usize, alignment: usize, wish: u64, flags: u64)
        [Healthy] => safe reserve;
    /// Frees reserved addresses with nothing mapped.
    fn cuMemAddressFree(address: u64, bytes: usize) [Healthy] => safe free;
    /// Creates physical memory of a device.
    fn cuMemCreate(handle: Out<'_, u64>, bytes: usize, properties: Option<&Properties>, flags: u64)
        [Healthy] => safe create;
    /// Releases its handle. Mapped memory stays alive.
    fn cuMemRelease(handle: u64) [Healthy] => safe release;
    /// Maps all of it. Mapping a part is refused.
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) [Healthy] => safe map;
    /// Unmaps whole mappings immediately. Work that still touches them fails.
    fn cuMemUnmap(address: u64, bytes: usize) [Healthy] => safe unmap;
    /// Sets which devices may access a mapped range.
    fn cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize)
        [Healthy] => raw set_access;
    /// Returns 2 MiB as both the minimum and the recommended granularity.
    fn cuMemGetAllocationGranularity(bytes: Out<'_, usize>, properties: Option<&Properties>, option: u32)
        [Init] => safe granularity;
}

fn reserve(
    driver: &mut Session,
    address: Out<'_, u64>,
    bytes: usize,
    alignment: usize,
    _wish: u64,
    flags: u64,
) -> Outcome {
    let address = required(address)?;
    no_flags(flags)?;
    address.write(driver.engine.reserve_addresses(bytes as u64, alignment as u64)?);
    Ok(())
}

fn free(driver: &mut Session, address: u64, bytes: usize) -> Outcome {
    Ok(driver.engine.virtual_memory.free_addresses(address, bytes as u64)?)
}

fn create(
    driver: &mut Session,
    handle: Out<'_, u64>,
    bytes: usize,
    properties: Option<&Properties>,
    flags: u64,
) -> Outcome {
    let handle = required(handle)?;
    no_flags(flags)?;
    handle.write(driver.create_physical(bytes as u64, *required(properties)?)?);
    Ok(())
}

fn release(driver: &mut Session, handle: u64) -> Outcome {
    driver.engine.release_physical(handle)?;
    driver.exportable.remove(&handle);
    Ok(())
}

fn map(driver: &mut Session, address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Outcome {
    no_flags(flags)?;
    driver.map_whole(address, bytes as u64, offset as u64, handle)
}

fn unmap(driver: &mut Session, address: u64, bytes: usize) -> Outcome {
    Ok(driver.engine.unmap(address, bytes as u64)?)
}

/// # Safety
/// * `access` is null, or points to `count` descriptors.
unsafe fn set_access(driver: &mut Session, address: u64, bytes: usize, access: *const Access, count: usize) -> Outcome {
    if access.is_null() || count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises that many descriptors there.
    let access = unsafe { std::slice::from_raw_parts(access, count) };
    access.iter().try_for_each(|access| driver.set_access(address, bytes as u64, *access))
}

fn granularity(driver: &mut Session, bytes: Out<'_, usize>, properties: Option<&Properties>, option: u32) -> Outcome {
    let bytes = required(bytes)?;
    driver.check_properties(*required(properties)?)?;
    if option > 1 {
        return Err(Code::INVALID_VALUE);
    }
    bytes.write(GRANULARITY as usize);
    Ok(())
}

fn no_flags(flags: u64) -> Outcome {
    if flags == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}
