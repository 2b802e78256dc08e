//! The devices of the machine and their properties. Creates no context.
#![allow(unsafe_code)] // calls the driver

use std::ffi::{CStr, c_char};
use std::ptr;

use accelerator_core::{
    DeviceCapability, DeviceProperties, DriverError, DriverErrorKind, DriverResult, PciAddress, Uuid,
};
use level_zero_sys::{
    LevelZero, ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME, ze_api_version_t, ze_command_queue_group_properties_t,
    ze_command_queue_group_property_flag_t as GroupFlag, ze_device_external_memory_properties_t, ze_device_handle_t,
    ze_device_memory_properties_t, ze_device_module_flag_t as ModuleFlag, ze_device_module_properties_t,
    ze_device_properties_t, ze_device_property_flag_t as DeviceFlag, ze_device_type_t,
    ze_driver_extension_properties_t, ze_driver_handle_t, ze_driver_properties_t, ze_external_memory_type_flag_t,
    ze_pci_ext_properties_t, ze_structure_type_t,
};

use crate::answer::ask;

/// A GPU and its driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) driver: ze_driver_handle_t,
    pub(crate) device: ze_device_handle_t,
}

// SAFETY: The handles are only names; any thread may use them.
unsafe impl Send for Found {}
// SAFETY: As for `Send`.
unsafe impl Sync for Found {}

/// Returns a list from a function that is called twice: first for the number of items, then for the items. Some drivers
/// crash if asked for handles right away.
pub(crate) fn list<T: Clone>(blank: T, ask: impl Fn(*mut u32, *mut T) -> DriverResult<()>) -> DriverResult<Vec<T>> {
    let mut count = 0;
    ask(&mut count, ptr::null_mut())?;
    let mut items = vec![blank; count as usize];
    if count > 0 {
        ask(&mut count, items.as_mut_ptr())?;
    }
    items.truncate(count as usize); // there may be fewer now
    Ok(items)
}

/// Adds sizes of memories. They may be anything, as a driver may be wrong.
pub(crate) fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Returns the GPUs of these drivers, in the loader's order. The loader respects `ZE_AFFINITY_MASK` and
/// `ZE_FLAT_DEVICE_HIERARCHY`. If one driver cannot list its devices, those of the others are still returned.
pub(crate) fn find(api: &LevelZero, drivers: Vec<ze_driver_handle_t>) -> DriverResult<Vec<Found>> {
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    for driver in drivers {
        match gpus(api, driver) {
            Ok(devices) => found.extend(devices.into_iter().map(|device| Found { driver, device })),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    if found.is_empty() { failed.map(|()| found) } else { Ok(found) }
}

fn gpus(api: &LevelZero, driver: ze_driver_handle_t) -> DriverResult<Vec<ze_device_handle_t>> {
    let ask = |count: *mut u32, devices: *mut ze_device_handle_t| {
        // SAFETY: The call writes a number and at most that many handles.
        unsafe { ask!(api, zeDeviceGet(driver, count, devices)) }
    };
    let mut gpus = Vec::new();
    for device in list(ptr::null_mut(), ask)? {
        if described(api, device)?.type_ == ze_device_type_t::ZE_DEVICE_TYPE_GPU {
            gpus.push(device);
        }
    }
    Ok(gpus)
}

/// Returns the driver's description of a device. The clock resolution is in ticks per second.
pub(crate) fn described(api: &LevelZero, device: ze_device_handle_t) -> DriverResult<ze_device_properties_t> {
    let mut described = ze_device_properties_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
        ..Default::default()
    };
    // SAFETY: The call fills a structure whose `stype` is set.
    unsafe { ask!(api, zeDeviceGetProperties(device, &mut described)) }?;
    Ok(described)
}

impl Found {
    /// Returns the version of Level Zero that the driver implements.
    pub(crate) fn api_version(self, api: &LevelZero) -> DriverResult<(u32, u32)> {
        let mut version = ze_api_version_t(0);
        // SAFETY: The call writes a number.
        unsafe { ask!(api, zeDriverGetApiVersion(self.driver, &mut version)) }?;
        Ok((version.0 >> 16, version.0 & 0xffff))
    }

    /// Returns the names of the driver's extensions.
    pub(crate) fn extensions(self, api: &LevelZero) -> DriverResult<Vec<String>> {
        let blank = ze_driver_extension_properties_t { name: [0; 256], version: 0 };
        let ask = |count: *mut u32, extensions: *mut ze_driver_extension_properties_t| {
            // SAFETY: The call writes a number and at most that many structures.
            unsafe { ask!(api, zeDriverGetExtensionProperties(self.driver, count, extensions)) }
        };
        Ok(list(blank, ask)?.iter().map(|extension| text(&extension.name)).collect())
    }

    /// Returns the group of queues that can both compute and copy, and its number of queues.
    pub(crate) fn queue_group(self, api: &LevelZero) -> DriverResult<(u32, u32)> {
        let blank = ze_command_queue_group_properties_t::default();
        let ask = |count: *mut u32, groups: *mut ze_command_queue_group_properties_t| {
            // SAFETY: The call writes a number and fills at most that many structures, whose `stype` is set.
            unsafe { ask!(api, zeDeviceGetCommandQueueGroupProperties(self.device, count, groups)) }
        };
        let both = GroupFlag::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE.0
            | GroupFlag::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY.0;
        let groups = list(blank, ask)?;
        let found = groups.iter().position(|group| group.flags & both == both && group.numQueues > 0);
        let none = || {
            let call = "zeDeviceGetCommandQueueGroupProperties";
            let why = "the device has no queues for both computing and copying";
            DriverError::refused(DriverErrorKind::Unsupported, call, why)
        };
        found.map(|place| (place as u32, groups[place].numQueues)).ok_or_else(none)
    }

    /// Whether memory can be exported as files, and opened from them. Without an answer, it cannot.
    pub(crate) fn makes_files(self, api: &LevelZero) -> bool {
        let mut types = ze_device_external_memory_properties_t::default();
        // SAFETY: The call fills a structure whose `stype` is set.
        let asked = unsafe { ask!(api, zeDeviceGetExternalMemoryProperties(self.device, &mut types)) };
        asked.is_ok() && types.memoryAllocationExportTypes & types.memoryAllocationImportTypes & FILE != 0
    }

    /// Whether a device with this description shares the host's memory.
    pub(crate) fn is_integrated(described: &ze_device_properties_t) -> bool {
        described.flags & DeviceFlag::ZE_DEVICE_PROPERTY_FLAG_INTEGRATED.0 != 0
    }

    /// Returns the device's properties.
    pub(crate) fn properties(
        self,
        api: &LevelZero,
        described: &ze_device_properties_t,
        extensions: &[String],
    ) -> DriverResult<DeviceProperties> {
        let unlimited =
            extensions.iter().any(|name| name.as_bytes() == ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME.to_bytes());
        let mut properties = DeviceProperties::new(text(&described.name), self.total_memory(api)?);
        properties.driver = self.driver_text(api)?;
        properties.largest_allocation = if unlimited { u64::MAX } else { described.maxMemAllocSize };
        properties.alignment = ALIGNMENT;
        properties.stream_priorities = (1, -1); // as in PyTorch
        properties.capability = self.capability(api)?;
        properties.uuid = Some(Uuid(described.uuid.id));
        properties.pci_address = self.pci_address(api);
        Ok(properties)
    }

    fn driver_text(self, api: &LevelZero) -> DriverResult<String> {
        let mut properties = ze_driver_properties_t::default();
        // SAFETY: The call fills a structure whose `stype` is set.
        unsafe { ask!(api, zeDriverGetProperties(self.driver, &mut properties)) }?;
        let version = properties.driverVersion;
        let (major, minor) = self.api_version(api)?;
        // Intel packs three numbers into one like this.
        let (generation, release, build) = (version >> 24, version >> 16 & 0xff, version & 0xffff);
        Ok(format!("Level Zero {major}.{minor}, driver {generation}.{release}.{build}"))
    }

    fn total_memory(self, api: &LevelZero) -> DriverResult<u64> {
        let blank = ze_device_memory_properties_t::default();
        let ask = |count: *mut u32, memories: *mut ze_device_memory_properties_t| {
            // SAFETY: The call writes a number and fills at most that many structures, whose `stype` is set.
            unsafe { ask!(api, zeDeviceGetMemoryProperties(self.device, count, memories)) }
        };
        Ok(sum(list(blank, ask)?.iter().map(|memory| memory.totalSize)))
    }

    fn capability(self, api: &LevelZero) -> DriverResult<DeviceCapability> {
        let mut module = ze_device_module_properties_t::default();
        // SAFETY: The call fills a structure whose `stype` is set.
        unsafe { ask!(api, zeDeviceGetModuleProperties(self.device, &mut module)) }?;
        let has = |flag: ModuleFlag| module.flags & flag.0 != 0;
        let mut dtypes = vec!["bfloat16", "complex64"];
        if has(ModuleFlag::ZE_DEVICE_MODULE_FLAG_FP16) {
            dtypes.push("float16");
        }
        if has(ModuleFlag::ZE_DEVICE_MODULE_FLAG_FP64) {
            dtypes.extend(["float64", "complex128"]);
        }
        Ok(DeviceCapability::with(dtypes))
    }

    fn pci_address(self, api: &LevelZero) -> Option<PciAddress> {
        let mut pci = ze_pci_ext_properties_t::default();
        // SAFETY: The call fills a structure whose `stype` is set.
        unsafe { ask!(api, zeDevicePciGetPropertiesExt(self.device, &mut pci)) }.ok()?;
        let address = pci.address;
        Some(PciAddress {
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            function: address.function,
        })
    }
}

/// The alignment requested for memory, as in PyTorch. All drivers seen so far align at least to a page.
pub(crate) const ALIGNMENT: u64 = 512;

/// The kind of file as which memory is exported.
pub(crate) const FILE: u32 = ze_external_memory_type_flag_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF.0;

fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|character| *character as u8).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_true_do_not_overflow_their_sum() {
        assert_eq!(sum([3, 4].into_iter()), 7);
        assert_eq!(sum([3, u64::MAX - 2, 4].into_iter()), u64::MAX);
    }
}
