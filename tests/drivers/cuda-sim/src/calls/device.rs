//! Devices and their properties.

use std::ffi::c_char;

use sim_engine::out::{self, Out};

use crate::code::{Code, Outcome};
use crate::device;
use crate::gate::{exports, required};
use crate::state::{Driver, Session};

exports! {
    /// Returns the number of devices that the process sees.
    fn cuDeviceGetCount(count: Out<'_, i32>) [Init] => safe count;
    /// Returns a device by its index among them.
    fn cuDeviceGet(device: Out<'_, i32>, ordinal: i32) [Init] => safe get;
    /// Returns the name, `Simulated CUDA device N`.
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) [Init] => raw name;
    /// Returns an identifier that does not depend on which devices the process sees.
    fn cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, device: i32) [Init] => safe uuid;
    /// Returns `domain:bus:device.function`.
    fn cuDeviceGetPCIBusId(text: *mut c_char, length: i32, device: i32) [Init] => raw pci_address;
    /// Returns the total bytes of memory.
    fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: i32) [Init] => safe total_memory;
    /// Returns an attribute of the device.
    fn cuDeviceGetAttribute(value: Out<'_, i32>, attribute: i32, device: i32) [Init] => safe attribute;
    /// Whether kernels of a device may be given access to another device's memory: always true.
    fn cuDeviceCanAccessPeer(can: Out<'_, i32>, device: i32, peer: i32) [Init] => safe can_access_peer;
}

exports! { newer:
    /// Like `cuDeviceGetUuid`. The two differ only for partitions of a device, which are not simulated.
    fn cuDeviceGetUuid_v2(uuid: Out<'_, [u8; 16]>, device: i32) [Init] => safe uuid;
}

fn count(driver: &mut Session, count: Out<'_, i32>) -> Outcome {
    required(count)?.write(driver.devices.len() as i32);
    Ok(())
}

fn get(driver: &mut Session, device: Out<'_, i32>, ordinal: i32) -> Outcome {
    let device = required(device)?;
    driver.device(ordinal)?;
    device.write(ordinal);
    Ok(())
}

/// # Safety
/// * `place` is null, or has room for `length` bytes.
unsafe fn name(driver: &mut Session, place: *mut c_char, length: i32, device: i32) -> Outcome {
    let text = format!("Simulated CUDA device {}", number(driver, device)?);
    // SAFETY: the caller promises the same.
    unsafe { put_text(place, length, &text) }
}

/// # Safety
/// * `place` is null, or has room for `length` bytes.
unsafe fn pci_address(driver: &mut Session, place: *mut c_char, length: i32, device: i32) -> Outcome {
    let bus = device::pci_bus(number(driver, device)?);
    let text = format!("{:04X}:{bus:02X}:{:02X}.0", device::PCI_DOMAIN, device::PCI_DEVICE);
    if length <= text.len() as i32 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises the same.
    unsafe { put_text(place, length, &text) }
}

/// Writes as much of a string as fits, followed by a zero byte.
///
/// # Safety
/// * `place` is null, or has room for `length` bytes.
unsafe fn put_text(place: *mut c_char, length: i32, text: &str) -> Outcome {
    let room = usize::try_from(length).ok().filter(|length| *length > 0 && !place.is_null());
    let room = required(room)?;
    // SAFETY: the caller promises the same.
    unsafe { out::put_text(place, room, text) };
    Ok(())
}

fn number(driver: &Driver, device: i32) -> Outcome<usize> {
    Ok(driver.devices[driver.device(device)?].number)
}

fn uuid(driver: &mut Session, uuid: Out<'_, [u8; 16]>, device: i32) -> Outcome {
    required(uuid)?.write(device::uuid(number(driver, device)?));
    Ok(())
}

fn total_memory(driver: &mut Session, bytes: Out<'_, usize>, device: i32) -> Outcome {
    let device = driver.device(device)?;
    required(bytes)?.write(driver.engine.devices[device].memory as usize);
    Ok(())
}

fn can_access_peer(driver: &mut Session, can: Out<'_, i32>, device: i32, peer: i32) -> Outcome {
    let (device, peer) = (driver.device(device)?, driver.device(peer)?);
    required(can)?.write(i32::from(device != peer));
    Ok(())
}

/// The highest attribute number that the driver knows.
const LAST_ATTRIBUTE: i32 = 150;

fn attribute(driver: &mut Session, value: Out<'_, i32>, attribute: i32, device: i32) -> Outcome {
    let number = number(driver, device)?;
    let value = required(value)?;
    let settings = &driver.settings;
    let since = |version: i32| i32::from(settings.driver_version >= version);
    value.write(match attribute {
        1 => 1024,                     // MAX_THREADS_PER_BLOCK
        2 | 3 => 1024,                 // MAX_BLOCK_DIM_X, _Y
        4 => 64,                       // MAX_BLOCK_DIM_Z
        5 => i32::MAX,                 // MAX_GRID_DIM_X
        6 | 7 => 65_535,               // MAX_GRID_DIM_Y, _Z
        8 | 81 | 97 => 48 << 10,       // MAX_SHARED_MEMORY_PER_BLOCK, _PER_MULTIPROCESSOR, _PER_BLOCK_OPTIN
        9 => 64 << 10,                 // TOTAL_CONSTANT_MEMORY
        10 => 32,                      // WARP_SIZE
        11 => i32::MAX,                // MAX_PITCH
        12 | 82 => 64 << 10,           // MAX_REGISTERS_PER_BLOCK, _PER_MULTIPROCESSOR
        13 | 36 => 1_000_000,          // CLOCK_RATE, MEMORY_CLOCK_RATE
        14 => 512,                     // TEXTURE_ALIGNMENT
        15 | 19 | 31 | 41 => 1,        // GPU_OVERLAP, CAN_MAP_HOST_MEMORY, CONCURRENT_KERNELS, UNIFIED_ADDRESSING
        16 => 16,                      // MULTIPROCESSOR_COUNT
        33 => device::pci_bus(number), // PCI_BUS_ID
        34 => device::PCI_DEVICE,      // PCI_DEVICE_ID
        37 => 512,                     // GLOBAL_MEMORY_BUS_WIDTH
        38 => 4 << 20,                 // L2_CACHE_SIZE
        39 => 2048,                    // MAX_THREADS_PER_MULTIPROCESSOR
        40 => 3,                       // ASYNC_ENGINE_COUNT
        50 => device::PCI_DOMAIN,      // PCI_DOMAIN_ID
        75 => settings.capability.0,   // COMPUTE_CAPABILITY_MAJOR
        76 => settings.capability.1,   // COMPUTE_CAPABILITY_MINOR
        78 | 91 => 1,                  // STREAM_PRIORITIES_SUPPORTED, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        102 => since(10_020),          // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
        103 | 110 => i32::from(settings.exports),
        125 => 1,             // IPC_EVENT_SUPPORTED
        115 => since(11_020), // MEMORY_POOLS_SUPPORTED
        known if (1..=LAST_ATTRIBUTE).contains(&known) => 0,
        _ => return Err(Code::INVALID_VALUE),
    });
    Ok(())
}
