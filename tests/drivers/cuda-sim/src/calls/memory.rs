//! Device memory and pinned host memory.

use crate::code::{Code, Outcome};
use crate::gate::{Out, exports, put, required};
use crate::state::Session;

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`, which are kept and change nothing here.
const HOST_FLAGS: u32 = 7;

exports! {
    /// Memory of the current device, at a multiple of 2 MiB.
    fn cuMemAlloc_v2(address: Out<'_, u64>, bytes: usize) [NoCapture] => safe allocate;
    /// Waits for all work of the device, then frees.
    fn cuMemFree_v2(address: u64) [NoCapture] => safe free;
    /// Free and all memory of the current device.
    fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) [Context] => safe info;
    /// Pinned host memory, which devices see at the same address.
    fn cuMemHostAlloc(address: Out<'_, u64>, bytes: usize, flags: u32) [NoCapture] => safe allocate_pinned;
    /// The flags that it was allocated with.
    fn cuMemHostGetFlags(flags: Out<'_, u32>, address: u64) [Context] => safe host_flags;
    /// The same without flags.
    fn cuMemAllocHost_v2(address: Out<'_, u64>, bytes: usize) [NoCapture] => safe allocate_plain_pinned;
    /// Frees it, at once; a violation if work still uses it.
    fn cuMemFreeHost(address: u64) [NoCapture] => safe free_pinned;
    /// Where devices see it.
    fn cuMemHostGetDevicePointer_v2(device: Out<'_, u64>, address: u64, flags: u32)
        [Context] => safe device_pointer;
}

fn allocate(driver: &mut Session, address: Out<'_, u64>, bytes: usize) -> Outcome {
    let address = required(address)?;
    let context = driver.current()?;
    address.write(driver.allocate(context, bytes as u64, false)?);
    Ok(())
}

fn free(driver: &mut Session, address: u64) -> Outcome {
    let context = driver.memory.allocation(address)?.context;
    driver.context(context)?;
    // A device has no other context than its primary one.
    let ends = driver.ends_of(context);
    driver.wait(&ends);
    // Both may be otherwise by now: work may have gone wrong, or another thread may have freed the same
    // memory.
    driver.context(context)?;
    driver.memory.allocation(address)?;
    driver.release_memory(address);
    Ok(())
}

fn info(driver: &mut Session, free: Out<'_, usize>, total: Out<'_, usize>) -> Outcome {
    let context = driver.current()?;
    let device = driver.context(context)?.device;
    let device = &driver.devices[device];
    put(free, device.memory.saturating_sub(device.used) as usize);
    put(total, device.memory as usize);
    Ok(())
}

fn allocate_pinned(driver: &mut Session, address: Out<'_, u64>, bytes: usize, flags: u32) -> Outcome {
    let address = required(address)?;
    if flags & !HOST_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    address.write(driver.host.allocate(bytes, flags)?);
    Ok(())
}

fn host_flags(driver: &mut Session, flags: Out<'_, u32>, address: u64) -> Outcome {
    let flags = required(flags)?;
    flags.write(driver.host.flags(address).ok_or(Code::INVALID_VALUE)?);
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
    if flags != 0 || driver.host.containing(address).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    device.write(address);
    Ok(())
}
