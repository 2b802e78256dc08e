//! Devices and their properties.

use level_zero_sys::*;

use crate::arguments::{Array, DeviceHandle, DriverHandle, Object, Place};
use crate::device::{QUEUE_GROUPS, text, ticks};
use crate::files::KINDS;
use crate::gate::functions;
use crate::module::MAX_GROUP;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::Session;
use crate::structures::find_mut;

functions! {
    /// Enumerates the devices that the process sees.
    fn zeDeviceGet(driver: DriverHandle, count: &mut u32, devices: Array<*mut ze_device_handle_t>)
        [Init] => get;
    /// Returns the root device of a sub-device. There is none, because there are no sub-devices.
    fn zeDeviceGetRootDevice(device: DeviceHandle, root: Place<'_, ze_device_handle_t>) [Init] => root;
    /// Enumerates the sub-devices of a device: none.
    fn zeDeviceGetSubDevices(device: DeviceHandle, count: &mut u32, parts: Array<*mut ze_device_handle_t>)
        [Init] => parts;
    /// Returns the name, UUID and limits.
    fn zeDeviceGetProperties(device: DeviceHandle, properties: &mut ze_device_properties_t)
        [Init] => properties;
    /// Returns the limits of thread groups.
    fn zeDeviceGetComputeProperties(device: DeviceHandle, properties: &mut ze_device_compute_properties_t)
        [Init] => compute_properties;
    /// Returns what modules may contain.
    fn zeDeviceGetModuleProperties(device: DeviceHandle, properties: &mut ze_device_module_properties_t)
        [Init] => module_properties;
    /// Enumerates the queue groups: one computes and copies, another only copies.
    fn zeDeviceGetCommandQueueGroupProperties(
        device: DeviceHandle,
        count: &mut u32,
        groups: Array<*mut ze_command_queue_group_properties_t>,
    ) [Init] => queue_groups;
    /// Returns the properties of its single memory.
    fn zeDeviceGetMemoryProperties(
        device: DeviceHandle,
        count: &mut u32,
        memories: Array<*mut ze_device_memory_properties_t>,
    ) [Init] => memories;
    /// Returns how it can access each kind of memory.
    fn zeDeviceGetMemoryAccessProperties(
        device: DeviceHandle,
        properties: &mut ze_device_memory_access_properties_t,
    ) [Init] => memory_access;
    /// Returns which kinds of files its memory can be exported as, and opened from.
    fn zeDeviceGetExternalMemoryProperties(
        device: DeviceHandle,
        properties: &mut ze_device_external_memory_properties_t,
    ) [Init] => file_properties;
    /// Returns how it can access another device's memory.
    fn zeDeviceGetP2PProperties(
        device: DeviceHandle,
        peer: DeviceHandle,
        properties: &mut ze_device_p2p_properties_t,
    ) [Init] => peer_properties;
    /// Whether it can access another device's memory.
    fn zeDeviceCanAccessPeer(device: DeviceHandle, peer: DeviceHandle, can: Place<'_, ze_bool_t>)
        [Init] => can_access_peer;
    /// Returns an error if the device is lost.
    fn zeDeviceGetStatus(device: DeviceHandle) [InitAlone] => status;
    /// Returns the current clocks of the host and the device.
    fn zeDeviceGetGlobalTimestamps(device: DeviceHandle, host: Place<'_, u64>, own: Place<'_, u64>)
        [Init] => timestamps;
    /// Returns the PCI address.
    fn zeDevicePciGetPropertiesExt(device: DeviceHandle, properties: &mut ze_pci_ext_properties_t)
        [Init] => pci;
    /// Waits for all its work.
    fn zeDeviceSynchronize(device: DeviceHandle) [Init] => synchronize;
}

/// Free but unusable memory, where the driver reports how much is usable.
const NOT_USABLE: u64 = 1 << 20;

fn get(
    session: &mut Session,
    driver: DriverHandle,
    count: &mut u32,
    devices: Array<*mut ze_device_handle_t>,
) -> Outcome {
    session.check_driver(driver)?;
    let asks_for_handles = *count > 0 && !devices.is_null();
    if asks_for_handles && !session.devices_counted && session.settings.has(Quirk::NoHandlesWithoutCount) {
        return Err(Refusal::INVALID_SIZE);
    }
    session.devices_counted = true;
    let own = session.devices.iter().map(|device| DeviceHandle::new(device.handle).raw());
    // SAFETY: `count` is the length that the caller passed.
    unsafe { devices.answer(count, own) };
    Ok(())
}

fn root(session: &mut Session, device: DeviceHandle, root: Place<'_, ze_device_handle_t>) -> Outcome {
    session.device(device)?;
    root.put(std::ptr::null_mut());
    Ok(())
}

fn parts(session: &mut Session, device: DeviceHandle, count: &mut u32, _: Array<*mut ze_device_handle_t>) -> Outcome {
    session.device(device)?;
    *count = 0;
    Ok(())
}

fn properties(session: &mut Session, device: DeviceHandle, properties: &mut ze_device_properties_t) -> Outcome {
    let device = session.device(device)?;
    session.check_type(properties);
    session.describe_device(device, properties);
    // SAFETY: the caller's structure starts a valid chain.
    let usable = unsafe { find_mut::<ze_device_usablemem_size_ext_properties_t>(properties.pNext) };
    if let Some(usable) = usable.filter(|_| session.settings.has(Quirk::UsableMemory)) {
        usable.currUsableMemSize = session.memory_of(device).free().saturating_sub(NOT_USABLE);
    }
    Ok(())
}

fn compute_properties(
    session: &mut Session,
    device: DeviceHandle,
    properties: &mut ze_device_compute_properties_t,
) -> Outcome {
    session.device(device)?;
    session.check_type(properties);
    *properties = ze_device_compute_properties_t {
        pNext: properties.pNext,
        maxTotalGroupSize: MAX_GROUP,
        maxGroupSizeX: MAX_GROUP,
        maxGroupSizeY: MAX_GROUP,
        maxGroupSizeZ: MAX_GROUP,
        maxGroupCountX: u32::MAX,
        maxGroupCountY: u32::MAX,
        maxGroupCountZ: u32::MAX,
        maxSharedLocalMemory: 64 << 10,
        numSubGroupSizes: 3,
        subGroupSizes: [8, 16, 32, 0, 0, 0, 0, 0],
        ..Default::default()
    };
    Ok(())
}

fn module_properties(
    session: &mut Session,
    device: DeviceHandle,
    properties: &mut ze_device_module_properties_t,
) -> Outcome {
    session.device(device)?;
    session.check_type(properties);
    let (next, version) = (properties.pNext, 0x1_0004);
    *properties = ze_device_module_properties_t {
        pNext: next,
        spirvVersionSupported: version,
        maxArgumentsSize: 2048,
        printfBufferSize: 4 << 20,
        ..Default::default()
    };
    Ok(())
}

fn queue_groups(
    session: &mut Session,
    device: DeviceHandle,
    count: &mut u32,
    groups: Array<*mut ze_command_queue_group_properties_t>,
) -> Outcome {
    session.device(device)?;
    let fill = |place: &mut ze_command_queue_group_properties_t, group: &crate::device::QueueGroup| {
        session.check_type(place);
        place.flags = group.flags;
        place.maxMemoryFillPatternSize = group.longest_pattern;
        place.numQueues = group.queues;
    };
    // SAFETY: `count` is the length that the caller passed.
    unsafe { groups.answer_with(count, QUEUE_GROUPS.iter(), fill) };
    Ok(())
}

fn memories(
    session: &mut Session,
    device: DeviceHandle,
    count: &mut u32,
    memories: Array<*mut ze_device_memory_properties_t>,
) -> Outcome {
    let device = session.device(device)?;
    let total = session.memory_of(device).memory;
    let fill = |place: &mut ze_device_memory_properties_t, total: u64| {
        session.check_type(place);
        *place = ze_device_memory_properties_t {
            pNext: place.pNext,
            flags: 0,
            maxClockRate: 1_000,
            maxBusWidth: 256,
            totalSize: total,
            name: text("simulated"),
            ..Default::default()
        };
    };
    // SAFETY: `count` is the length that the caller passed.
    unsafe { memories.answer_with(count, [total].into_iter(), fill) };
    Ok(())
}

fn file_properties(
    session: &mut Session,
    device: DeviceHandle,
    properties: &mut ze_device_external_memory_properties_t,
) -> Outcome {
    session.device(device)?;
    session.check_type(properties);
    let kinds = if session.settings.has(Quirk::NoFiles) { 0 } else { KINDS };
    properties.memoryAllocationImportTypes = kinds;
    properties.memoryAllocationExportTypes = kinds;
    properties.imageImportTypes = 0;
    properties.imageExportTypes = 0;
    Ok(())
}

fn memory_access(
    session: &mut Session,
    device: DeviceHandle,
    properties: &mut ze_device_memory_access_properties_t,
) -> Outcome {
    session.device(device)?;
    session.check_type(properties);
    let plain = ze_memory_access_cap_flag_t::ZE_MEMORY_ACCESS_CAP_FLAG_RW.0;
    properties.hostAllocCapabilities = plain;
    properties.deviceAllocCapabilities = plain;
    properties.sharedSingleDeviceAllocCapabilities = plain;
    properties.sharedCrossDeviceAllocCapabilities = plain;
    // Kernels access only driver memory.
    properties.sharedSystemAllocCapabilities = 0;
    Ok(())
}

fn peer_properties(
    session: &mut Session,
    device: DeviceHandle,
    peer: DeviceHandle,
    properties: &mut ze_device_p2p_properties_t,
) -> Outcome {
    let reaches = reaches(session, device, peer)?;
    session.check_type(properties);
    let access = ze_device_p2p_property_flag_t::ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS.0;
    properties.flags = if reaches { access } else { 0 };
    Ok(())
}

fn can_access_peer(
    session: &mut Session,
    device: DeviceHandle,
    peer: DeviceHandle,
    can: Place<'_, ze_bool_t>,
) -> Outcome {
    can.put(reaches(session, device, peer)?.into());
    Ok(())
}

fn reaches(session: &mut Session, device: DeviceHandle, peer: DeviceHandle) -> Outcome<bool> {
    let (device, peer) = (session.device(device)?, session.device(peer)?);
    Ok(device == peer || session.settings.peers)
}

fn status(session: &mut Session, device: DeviceHandle) -> Outcome {
    let device = session.device(device)?;
    if session.is_lost(device) { Err(Refusal::DEVICE_LOST) } else { Ok(()) }
}

fn timestamps(session: &mut Session, device: DeviceHandle, host: Place<'_, u64>, own: Place<'_, u64>) -> Outcome {
    session.device(device)?;
    let clock = session.engine.clock;
    host.put(clock);
    own.put(ticks(clock));
    Ok(())
}

fn pci(session: &mut Session, device: DeviceHandle, properties: &mut ze_pci_ext_properties_t) -> Outcome {
    let device = session.device(device)?;
    session.check_type(properties);
    if session.settings.has(Quirk::NoPci) {
        return Err(Refusal::UNSUPPORTED_FEATURE);
    }
    properties.address = session.devices[device].pci_address();
    properties.maxSpeed = ze_pci_speed_ext_t { genVersion: -1, width: -1, maxBandwidth: -1 };
    Ok(())
}

fn synchronize(session: &mut Session, device: DeviceHandle) -> Outcome {
    let device = session.device(Object::new(device.number))?;
    let ends = session.engine.ends(|_, lane| lane.device == device);
    let conditions: Vec<_> = ends.into_iter().map(Into::into).collect();
    crate::wait::wait(session, &conditions, u64::MAX, &[device])
}
