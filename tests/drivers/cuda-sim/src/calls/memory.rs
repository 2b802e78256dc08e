//! Device memory and pinned host memory.

use sim_engine::out::{Out, put};

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::state::{Handle, Session};

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`. They are stored and have no effect here.
const HOST_FLAGS: u32 = 7;
/// `CU_MEMHOSTALLOC_DEVICEMAP`. With unified addressing, the driver adds it to the flags of all pinned memory.
const DEVICE_MAP: u32 = 2;

/// Pinned memory belongs to all contexts.
const NO_OWNER: Handle = 0;

exports! {
    /// Allocates memory of the current device, aligned to 2 MiB.
    fn cuMemAlloc_v2(address: Out<'_, u64>, bytes: usize) [NoCapture] => safe allocate;
    /// Waits for all work of the device, then frees memory.
    fn cuMemFree_v2(address: u64) [NoCapture] => safe free;
    /// Returns the free and the total memory of the current device.
    fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) [Context] => safe info;
    /// Allocates pinned host memory, which devices see at the same address.
    fn cuMemHostAlloc(address: Out<'_, u64>, bytes: usize, flags: u32) [NoCapture] => safe allocate_pinned;
    /// Returns the flags that pinned memory was allocated with.
    fn cuMemHostGetFlags(flags: Out<'_, u32>, address: u64) [Context] => safe host_flags;
    /// Allocates pinned host memory without flags.
    fn cuMemAllocHost_v2(address: Out<'_, u64>, bytes: usize) [NoCapture] => safe allocate_plain_pinned;
    /// Frees pinned memory immediately. It is a violation if work still uses it.
    fn cuMemFreeHost(address: u64) [NoCapture] => safe free_pinned;
    /// Returns the address at which devices see pinned memory.
    fn cuMemHostGetDevicePointer_v2(device: Out<'_, u64>, address: u64, flags: u32)
        [Context] => safe device_pointer;
}

fn allocate(driver: &mut Session, address: Out<'_, u64>, bytes: usize) -> Outcome {
    let address = required(address)?;
    let context = driver.current()?;
    address.write(driver.allocate(context, bytes as u64, 0)?);
    Ok(())
}

fn free(driver: &mut Session, address: u64) -> Outcome {
    let allocation = driver.engine.memory.at(address).filter(|allocation| !allocation.imported);
    let context = allocation.ok_or(Code::INVALID_VALUE)?.owner;
    driver.context(context)?;
    // A device has only its primary context.
    let ends = driver.ends_of(context);
    driver.wait(&ends);
    // Check again: work may have failed meanwhile, or another thread may have freed the same memory.
    driver.context(context)?;
    Ok(driver.engine.free(address)?)
}

fn info(driver: &mut Session, free: Out<'_, usize>, total: Out<'_, usize>) -> Outcome {
    let context = driver.current()?;
    let device = driver.context(context)?.device;
    let device = driver.engine.devices[device];
    put(free, device.free() as usize);
    put(total, device.memory as usize);
    Ok(())
}

fn allocate_pinned(driver: &mut Session, address: Out<'_, u64>, bytes: usize, flags: u32) -> Outcome {
    let address = required(address)?;
    if flags & !HOST_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    address.write(driver.engine.host.allocate(bytes, NO_OWNER, None, flags | DEVICE_MAP)?);
    Ok(())
}

fn host_flags(driver: &mut Session, flags: Out<'_, u32>, address: u64) -> Outcome {
    let flags = required(flags)?;
    flags.write(required(driver.engine.host.containing(address))?.1.flags);
    Ok(())
}

fn allocate_plain_pinned(driver: &mut Session, address: Out<'_, u64>, bytes: usize) -> Outcome {
    allocate_pinned(driver, address, bytes, 0)
}

fn free_pinned(driver: &mut Session, address: u64) -> Outcome {
    driver.free_pinned(address)
}

fn device_pointer(driver: &mut Session, device: Out<'_, u64>, address: u64, flags: u32) -> Outcome {
    let device = required(device)?;
    if flags != 0 || driver.engine.host.containing(address).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    device.write(address);
    Ok(())
}
