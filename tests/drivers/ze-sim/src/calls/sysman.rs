//! System management: the total and the free memory of devices.

use level_zero_sys::*;

use crate::arguments::{Array, DeviceHandle, DriverHandle, Object};
use crate::device::text;
use crate::gate::functions;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::Session;

type MemoryHandle = Object<_zes_mem_handle_t>;
type SysmanDriver = DriverHandle;
type SysmanDevice = DeviceHandle;

functions! {
    /// Starts system management.
    fn zesInit(flags: u32) [Nothing] => init;
    /// Enumerates all drivers: one.
    fn zesDriverGet(count: &mut u32, drivers: Array<*mut zes_driver_handle_t>) [Sysman] => drivers;
    /// Enumerates the driver's devices.
    fn zesDeviceGet(driver: SysmanDriver, count: &mut u32, devices: Array<*mut zes_device_handle_t>)
        [Sysman] => devices;
    /// Returns the properties of a device.
    fn zesDeviceGetProperties(device: SysmanDevice, properties: &mut zes_device_properties_t)
        [Sysman] => properties;
    /// Enumerates the memories of a device: one.
    fn zesDeviceEnumMemoryModules(
        device: SysmanDevice,
        count: &mut u32,
        memories: Array<*mut zes_mem_handle_t>,
    )
        [Sysman] => memories;
    /// Returns the properties of a memory.
    fn zesMemoryGetProperties(memory: MemoryHandle, properties: &mut zes_mem_properties_t)
        [Sysman] => memory_properties;
    /// Returns the free bytes of a memory.
    fn zesMemoryGetState(memory: MemoryHandle, state: &mut zes_mem_state_t) [Sysman] => memory_state;
}

fn init(session: &mut Session, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    if session.settings.has(Quirk::NoSysman) || session.settings.mistake {
        return Err(Refusal::UNINITIALIZED);
    }
    session.find_devices();
    session.sysman = true;
    Ok(())
}

fn drivers(session: &mut Session, count: &mut u32, drivers: Array<*mut zes_driver_handle_t>) -> Outcome {
    let handle = SysmanDriver::new(session.handle).raw();
    // SAFETY: `count` is the length that the caller passed.
    unsafe { drivers.answer(count, [handle].into_iter()) };
    Ok(())
}

fn devices(
    session: &mut Session,
    driver: SysmanDriver,
    count: &mut u32,
    devices: Array<*mut zes_device_handle_t>,
) -> Outcome {
    session.check_driver(driver)?;
    let own = session.devices.iter().map(|device| SysmanDevice::new(device.handle).raw());
    // SAFETY: `count` is the length that the caller passed.
    unsafe { devices.answer(count, own) };
    Ok(())
}

fn properties(session: &mut Session, own: SysmanDevice, properties: &mut zes_device_properties_t) -> Outcome {
    let device = session.device(own)?;
    session.check_type(properties);
    session.describe_device(device, &mut properties.core);
    properties.numSubdevices = 0;
    properties.serialNumber = text("");
    properties.boardNumber = text("");
    properties.brandName = text("simulated");
    properties.modelName = text("simulated");
    properties.vendorName = text("nobody");
    properties.driverVersion = text("1");
    Ok(())
}

fn memories(
    session: &mut Session,
    own: SysmanDevice,
    count: &mut u32,
    memories: Array<*mut zes_mem_handle_t>,
) -> Outcome {
    let device = session.device(own)?;
    let handle = MemoryHandle::new(session.devices[device].memory_handle).raw();
    // SAFETY: `count` is the length that the caller passed.
    unsafe { memories.answer(count, [handle].into_iter()) };
    Ok(())
}

/// Returns the device that a memory belongs to.
fn memory(session: &mut Session, memory: MemoryHandle) -> Outcome<sim_engine::Device> {
    let found = session.devices.iter().position(|device| device.memory_handle == memory.number);
    match found {
        Some(device) => Ok(session.memory_of(device)),
        None => Err(session.unknown("memory module", memory.number)),
    }
}

fn memory_properties(session: &mut Session, own: MemoryHandle, properties: &mut zes_mem_properties_t) -> Outcome {
    let memory = memory(session, own)?;
    session.check_type(properties);
    properties.type_ = zes_mem_type_t::ZES_MEM_TYPE_HBM;
    properties.onSubdevice = 0;
    properties.subdeviceId = 0;
    properties.location = zes_mem_loc_t::ZES_MEM_LOC_DEVICE;
    properties.physicalSize = memory.memory;
    properties.busWidth = -1;
    properties.numChannels = -1;
    Ok(())
}

fn memory_state(session: &mut Session, own: MemoryHandle, state: &mut zes_mem_state_t) -> Outcome {
    let memory = memory(session, own)?;
    session.check_type(state);
    state.health = zes_mem_health_t::ZES_MEM_HEALTH_OK;
    state.free = memory.free();
    state.size = memory.memory;
    Ok(())
}
