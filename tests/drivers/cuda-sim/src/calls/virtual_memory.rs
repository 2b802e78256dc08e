//! Virtual memory.

use sim_engine::GRANULARITY;
use sim_engine::out::Out;

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::state::Session;
use crate::virtual_memory::{Access, Properties};

exports! { newer:
    /// Addresses that nothing is mapped at yet; a wish for certain ones is not followed.
    fn cuMemAddressReserve(address: Out<'_, u64>, bytes: usize, alignment: usize, wish: u64, flags: u64)
        [Healthy] => safe reserve;
    /// Gives them back, when nothing is mapped there any more.
    fn cuMemAddressFree(address: u64, bytes: usize) [Healthy] => safe free;
    /// Physical memory of a device.
    fn cuMemCreate(handle: Out<'_, u64>, bytes: usize, properties: Option<&Properties>, flags: u64)
        [Healthy] => safe create;
    /// Gives it up; it lives on while it is mapped.
    fn cuMemRelease(handle: u64) [Healthy] => safe release;
    /// Maps all of it; a part is refused.
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) [Healthy] => safe map;
    /// Unmaps whole mappings, at once: work that still touches them goes wrong.
    fn cuMemUnmap(address: u64, bytes: usize) [Healthy] => safe unmap;
    /// Says which devices may touch what is mapped there.
    fn cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize)
        [Healthy] => raw set_access;
    /// 2 MiB, both the least and the best.
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
    Ok(driver.engine.release_physical(handle)?)
}

fn map(driver: &mut Session, address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Outcome {
    no_flags(flags)?;
    driver.map_whole(address, bytes as u64, offset as u64, handle)
}

fn unmap(driver: &mut Session, address: u64, bytes: usize) -> Outcome {
    Ok(driver.engine.unmap(address, bytes as u64)?)
}

/// # Safety
/// * `access` is null, or points to so many.
unsafe fn set_access(
    driver: &mut Session,
    address: u64,
    bytes: usize,
    access: *const Access,
    count: usize,
) -> Outcome {
    if access.is_null() || count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises so many there.
    let access = unsafe { std::slice::from_raw_parts(access, count) };
    access.iter().try_for_each(|access| driver.set_access(address, bytes as u64, *access))
}

fn granularity(
    driver: &mut Session,
    bytes: Out<'_, usize>,
    properties: Option<&Properties>,
    option: u32,
) -> Outcome {
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
