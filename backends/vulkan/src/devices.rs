//! The devices of the machine and their order.
#![allow(unsafe_code)] // calls into the driver

use std::sync::OnceLock;

use accelerator_core::Unavailable;
use accelerator_core::backend_kit::{DeviceList, read_capacity};
use ash::vk;

use crate::answer;
use crate::library::library;
use crate::offer::Offer;
use crate::queues::{Choice, Queues};

const CAPACITY: &str = "ACCELERATOR_VULKAN_CAPACITY";
const DEVICES: &str = "ACCELERATOR_VULKAN_DEVICES";
const DEFAULT: &str = "discrete,integrated,virtual,other,cpu";
const TYPES: [(&str, &[vk::PhysicalDeviceType]); 6] = [
    ("discrete", &[vk::PhysicalDeviceType::DISCRETE_GPU]),
    ("integrated", &[vk::PhysicalDeviceType::INTEGRATED_GPU]),
    ("virtual", &[vk::PhysicalDeviceType::VIRTUAL_GPU]),
    ("cpu", &[vk::PhysicalDeviceType::CPU]),
    ("other", &[vk::PhysicalDeviceType::OTHER]),
    (
        "gpu",
        &[
            vk::PhysicalDeviceType::DISCRETE_GPU,
            vk::PhysicalDeviceType::INTEGRATED_GPU,
            vk::PhysicalDeviceType::VIRTUAL_GPU,
        ],
    ),
];

/// A device of one of the drivers.
pub(crate) struct Device {
    /// The driver's handle, which stays valid until the process ends.
    pub(crate) physical: vk::PhysicalDevice,
    /// The queues that `ACCELERATOR_VULKAN_QUEUES` chooses.
    pub(crate) queues: Queues,
    kind: vk::PhysicalDeviceType,
    name: String,
}

impl Device {
    /// Whether the device has the type of this name; `None` if there is no such type.
    fn is_of_type(&self, name: &str) -> Option<bool> {
        let (_, kinds) = TYPES.iter().find(|(named, _)| *named == name)?;
        Some(kinds.contains(&self.kind))
    }

    fn names(&self) -> Vec<&str> {
        vec![&self.name]
    }
}

/// Returns the devices in the order given by `ACCELERATOR_VULKAN_DEVICES`. They are looked up once.
pub(crate) fn all() -> Result<&'static [Device], Unavailable> {
    static FOUND: OnceLock<Result<Vec<Device>, Unavailable>> = OnceLock::new();
    let found = FOUND.get_or_init(|| chosen(find()?, &DeviceList::read(DEVICES, DEFAULT)));
    found.as_deref().map_err(Clone::clone)
}

/// Returns how much memory each device may hand out according to the environment.
pub(crate) fn capacity() -> Result<Option<u64>, Unavailable> {
    read_capacity(CAPACITY)
}

fn chosen(devices: Vec<Device>, list: &DeviceList) -> Result<Vec<Device>, Unavailable> {
    list.choose(devices, Device::is_of_type, Device::names)
}

/// Returns all usable devices, or the reason if there are none.
fn find() -> Result<Vec<Device>, Unavailable> {
    let (choice, library) = (Choice::read()?, library()?);
    // SAFETY: The instance lives until the process ends.
    let found = unsafe { library.instance.enumerate_physical_devices() };
    let found = answer::of("vkEnumeratePhysicalDevices", found).map_err(|error| Unavailable::new(error.to_string()))?;
    let (mut devices, mut reasons) = (Vec::new(), Vec::new());
    for physical in found {
        match Offer::of(&library.instance, physical, library.version) {
            Err(error) => reasons.push(error.to_string()),
            Ok(offer) => match offer.flaw().map_or_else(|| choice.of(&offer.families), |flaw| Err(flaw.to_string())) {
                Err(reason) => reasons.push(format!("`{}`: {reason}", offer.name)),
                Ok(queues) => {
                    devices.push(Device { physical, queues, kind: offer.properties.device_type, name: offer.name });
                }
            },
        }
    }
    if reasons.is_empty() {
        reasons.push("the Vulkan drivers found no device".to_owned());
    }
    if devices.is_empty() { Err(Unavailable::new(reasons.join("; "))) } else { Ok(devices) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &str) -> Result<String, Unavailable> {
        let (physical, queues) = (vk::PhysicalDevice::null(), Queues { family: 0, count: 1, timestamp_bits: 0 });
        let device = |kind, name: &str| Device { physical, queues, kind, name: name.to_owned() };
        let devices = vec![
            device(vk::PhysicalDeviceType::CPU, "llvmpipe (LLVM 15)"),
            device(vk::PhysicalDeviceType::INTEGRATED_GPU, "Intel(R) UHD"),
            device(vk::PhysicalDeviceType::DISCRETE_GPU, "NVIDIA H200"),
            device(vk::PhysicalDeviceType::DISCRETE_GPU, "AMD Radeon"),
        ];
        let chosen = chosen(devices, &DeviceList::new(DEVICES, list))?;
        Ok(chosen.iter().map(|device| device.name.split(' ').nth(1).unwrap_or("")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn entries_take_devices_in_turn() {
        for (list, expected) in [
            (DEFAULT, "H200 Radeon UHD (LLVM"),
            ("cpu, GPU", "(LLVM UHD H200 Radeon"),
            ("radeon,discrete", "Radeon H200"),
            ("intel(r),", "UHD"),
            ("h200,h200", "H200"),
        ] {
            assert_eq!(order(list).as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_list_that_means_nothing_is_told_what_there_is() {
        let reason = order("voodoo").unwrap_err().reason;
        assert!(reason.contains("`voodoo`") && reason.contains("`NVIDIA H200`"), "{reason}");
        assert!(order(",").is_err());
    }
}
