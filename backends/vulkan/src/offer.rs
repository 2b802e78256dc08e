//! What a physical device offers.
#![allow(unsafe_code)] // calls into the driver

use std::ffi::CStr;

use accelerator_core::{DeviceCapability, DriverError, DriverErrorKind, DriverResult, PciAddress, Uuid};
use ash::{ext, khr, vk};

use crate::answer;

/// The properties and features of a device that this crate uses.
pub(crate) struct Offer {
    pub(crate) name: String,
    /// The driver and its version, for people to read.
    pub(crate) driver: String,
    pub(crate) properties: vk::PhysicalDeviceProperties,
    pub(crate) families: Vec<vk::QueueFamilyProperties>,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    /// The version of Vulkan for this device: its own, or the instance's if that is older.
    version: u32,
    extensions: Vec<vk::ExtensionProperties>,
    has_timeline_semaphores: bool,
    /// Whether buffers have device addresses.
    pub(crate) has_addresses: bool,
    /// Whether memory can be bound to parts of sparse buffers.
    pub(crate) has_sparse_buffers: bool,
    /// Whether the same memory can be bound to sparse buffers at several places.
    pub(crate) has_aliases: bool,
    pub(crate) largest_allocation: u64,
    pub(crate) largest_buffer: u64,
    pub(crate) uuid: Uuid,
    pub(crate) pci_address: Option<PciAddress>,
    shader_types: Vec<&'static str>,
}

impl Offer {
    /// Asks the driver. `version` is the newest version of Vulkan that the instance may use.
    pub(crate) fn of(instance: &ash::Instance, physical: vk::PhysicalDevice, version: u32) -> DriverResult<Self> {
        // SAFETY: The instance is alive, and the device is one of it.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        // SAFETY: As above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        // SAFETY: As above.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        // SAFETY: As above.
        let extensions = unsafe { instance.enumerate_device_extension_properties(physical) };
        let text = |name: Result<&CStr, _>| name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut offer = Self {
            name: text(properties.device_name_as_c_str()),
            driver: String::new(),
            version: version.min(properties.api_version),
            families,
            memory,
            extensions: answer::of("vkEnumerateDeviceExtensionProperties", extensions)?,
            has_timeline_semaphores: false,
            has_addresses: false,
            has_sparse_buffers: false,
            has_aliases: false,
            largest_allocation: u64::MAX,
            largest_buffer: u64::MAX,
            uuid: Uuid([0; 16]),
            pci_address: None,
            shader_types: Vec::new(),
            properties,
        };
        if offer.version >= vk::API_VERSION_1_1 {
            offer.ask_properties(instance, physical);
            offer.ask_features(instance, physical);
        }
        Ok(offer)
    }

    fn ask_properties(&mut self, instance: &ash::Instance, physical: vk::PhysicalDevice) {
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut limits = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut buffers = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut ids).push_next(&mut limits);
        if self.has(khr::maintenance4::NAME, vk::API_VERSION_1_3) {
            all = all.push_next(&mut buffers);
        }
        if self.has(khr::driver_properties::NAME, vk::API_VERSION_1_2) {
            all = all.push_next(&mut driver);
        }
        if self.has_extension(ext::pci_bus_info::NAME) {
            all = all.push_next(&mut pci);
        }
        // SAFETY: The device is one of the instance, and supports each structure in the chain.
        unsafe { instance.get_physical_device_properties2(physical, &mut all) };
        self.uuid = Uuid(ids.device_uuid);
        if buffers.max_buffer_size > 0 {
            self.largest_buffer = buffers.max_buffer_size;
        }
        self.largest_allocation = limits.max_memory_allocation_size.min(self.largest_buffer);
        if self.has_extension(ext::pci_bus_info::NAME) {
            let (domain, bus, device, function) = (pci.pci_domain, pci.pci_bus, pci.pci_device, pci.pci_function);
            self.pci_address = Some(PciAddress { domain, bus, device, function });
        }
        let text = |name: Result<&CStr, _>| name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (name, info) = (text(driver.driver_name_as_c_str()), text(driver.driver_info_as_c_str()));
        let api = self.properties.api_version;
        let (major, minor) = (vk::api_version_major(api), vk::api_version_minor(api));
        self.driver = format!("{name} {info}, Vulkan {major}.{minor}.{}", vk::api_version_patch(api));
        self.driver = self.driver.trim_start().to_owned();
    }

    fn ask_features(&mut self, instance: &ash::Instance, physical: vk::PhysicalDevice) {
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut addresses = vk::PhysicalDeviceBufferDeviceAddressFeatures::default();
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
        let mut all = vk::PhysicalDeviceFeatures2::default();
        if self.has(khr::timeline_semaphore::NAME, vk::API_VERSION_1_2) {
            all = all.push_next(&mut timeline);
        }
        if self.has(khr::buffer_device_address::NAME, vk::API_VERSION_1_2) {
            all = all.push_next(&mut addresses);
        }
        if self.has(khr::shader_float16_int8::NAME, vk::API_VERSION_1_2) {
            all = all.push_next(&mut small);
        }
        // SAFETY: The device is one of the instance, and supports each structure in the chain.
        unsafe { instance.get_physical_device_features2(physical, &mut all) };
        let vk::PhysicalDeviceFeatures {
            shader_float64: has_float64,
            sparse_binding,
            sparse_residency_buffer,
            sparse_residency_aliased,
            ..
        } = all.features;
        let types = [(small.shader_float16, "float16"), (has_float64, "float64")];
        self.shader_types = types.into_iter().filter(|(has, _)| *has != 0).map(|(_, name)| name).collect();
        self.has_timeline_semaphores = timeline.timeline_semaphore != 0;
        self.has_addresses = addresses.buffer_device_address != 0;
        self.has_sparse_buffers = sparse_binding != 0 && sparse_residency_buffer != 0;
        self.has_aliases = self.has_sparse_buffers && sparse_residency_aliased != 0;
    }

    /// Why this crate cannot use the device, or `None` if it can.
    pub(crate) fn flaw(&self) -> Option<DriverError> {
        let code = vk::Result::ERROR_FEATURE_NOT_PRESENT.as_raw().into();
        let lacks = |call, name| DriverError::new(DriverErrorKind::Unsupported, call, code, name);
        if self.version < vk::API_VERSION_1_1 {
            let call = "vkGetPhysicalDeviceProperties";
            return Some(lacks(call, "the device supports Vulkan 1.0 only, but 1.1 is needed"));
        }
        (!self.has_timeline_semaphores).then(|| {
            let lacking = "VK_ERROR_FEATURE_NOT_PRESENT: the device has no timeline semaphores, which Vulkan 1.2 and \
                           VK_KHR_timeline_semaphore have";
            lacks("vkGetPhysicalDeviceFeatures2", lacking)
        })
    }

    /// Whether the device has what this extension offers, which is part of Vulkan from this version on.
    pub(crate) fn has(&self, extension: &CStr, since: u32) -> bool {
        self.version >= since || self.has_extension(extension)
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Whether the version of Vulkan for this device includes this one.
    pub(crate) fn has_version(&self, version: u32) -> bool {
        self.version >= version
    }

    pub(crate) fn has_extension(&self, extension: &CStr) -> bool {
        self.extensions.iter().any(|one| one.extension_name_as_c_str() == Ok(extension))
    }

    /// The types that kernels may use, as far as the driver tells.
    pub(crate) fn capability(&self) -> DeviceCapability {
        DeviceCapability::with(self.shader_types.iter().copied())
    }
}
