//! The devices of the machine, their order and their properties.

use std::sync::OnceLock;

use accelerator_core::backend_kit::{DeviceList, read_capacity};
use accelerator_core::{DeviceCapability, DriverResult, Unavailable};
use cl3::info_type::InfoType;
use cl3::types::{cl_device_id, cl_device_info, cl_name_version, cl_platform_id, cl_ulong};
use cl3::{device, error_codes, platform};

use crate::answer;

const CAPACITY: &str = "ACCELERATOR_OPENCL_CAPACITY";
const DEVICES: &str = "ACCELERATOR_OPENCL_DEVICES";
const DEFAULT: &str = "gpu,accelerator,cpu";
/// The device types that can run kernels. Others, such as those for video only, cannot.
const TYPES: [(&str, cl_ulong); 3] = [
    ("gpu", device::CL_DEVICE_TYPE_GPU),
    ("accelerator", device::CL_DEVICE_TYPE_ACCELERATOR),
    ("cpu", device::CL_DEVICE_TYPE_CPU),
];

/// A device of one of the platforms.
#[derive(Debug)]
pub(crate) struct Device {
    id: usize,
    kind: cl_ulong,
    name: String,
    platform: String,
}

impl Device {
    /// Returns the driver's handle, which stays valid until the process ends.
    pub(crate) fn id(&self) -> cl_device_id {
        std::ptr::with_exposed_provenance_mut(self.id)
    }

    /// Whether the device has the type of this name; `None` if there is no such type.
    fn is_of_type(&self, name: &str) -> Option<bool> {
        let (_, kind) = TYPES.iter().find(|(named, _)| *named == name)?;
        Some(self.kind & kind != 0)
    }

    fn names(&self) -> Vec<&str> {
        vec![&self.name, &self.platform]
    }
}

/// Returns the devices in the order given by `ACCELERATOR_OPENCL_DEVICES`. They are looked up once.
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

/// Returns all usable devices of all platforms, or the reason if there are none.
fn find() -> Result<Vec<Device>, Unavailable> {
    if let Err(error) = cl3::load_library() {
        let todo = "install one (Debian, Ubuntu: ocl-icd-libopencl1) and a driver";
        return Err(Unavailable::new(format!("there is no OpenCL loader ({error}): {todo}")));
    }
    let (mut devices, mut reasons) = (Vec::new(), Vec::new());
    match platform::get_platform_ids() {
        Ok(platforms) if !platforms.is_empty() => {
            platforms.iter().for_each(|platform| add_devices(*platform, &mut devices, &mut reasons));
        }
        Ok(_) | Err(error_codes::CL_PLATFORM_NOT_FOUND_KHR) => reasons.push(
            "the OpenCL loader found no platform: install a driver, or check that the files in \
             /etc/OpenCL/vendors, or in the folder that OCL_ICD_VENDORS names, name drivers that can be loaded"
                .to_owned(),
        ),
        Err(code) => reasons.push(answer::error("clGetPlatformIDs", code).to_string()),
    }
    if devices.is_empty() { Err(Unavailable::new(reasons.join("; "))) } else { Ok(devices) }
}

fn add_devices(platform: cl_platform_id, devices: &mut Vec<Device>, reasons: &mut Vec<String>) {
    let name = platform_name(platform);
    match device::get_device_ids(platform, device::CL_DEVICE_TYPE_ALL) {
        Ok(ids) if ids.is_empty() => reasons.push(format!("the platform `{name}` has no device")),
        Err(code) => reasons.push(format!("`{name}`: {}", answer::error("clGetDeviceIDs", code))),
        Ok(ids) => {
            for id in ids {
                let device = Device {
                    id: id.expose_provenance(),
                    kind: number(id, device::CL_DEVICE_TYPE).unwrap_or(0),
                    name: text(id, device::CL_DEVICE_NAME),
                    platform: name.clone(),
                };
                match flaw(id) {
                    None => devices.push(device),
                    Some(flaw) => reasons.push(format!("`{}` of `{name}` {flaw}", device.name)),
                }
            }
        }
    }
}

/// Returns why a device cannot be used, or `None` if it can.
fn flaw(id: cl_device_id) -> Option<String> {
    let version = text(id, device::CL_DEVICE_VERSION); // such as `OpenCL 1.2 ` and the vendor's text
    let parts = version.split(' ').nth(1).and_then(|number| number.split_once('.'));
    let parts = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if parts.is_none_or(|parts: (u32, u32)| parts < (1, 2)) {
        return Some(format!("supports `{version}`, but OpenCL 1.2 is needed"));
    }
    let available = number(id, device::CL_DEVICE_AVAILABLE).is_ok_and(|available| available != 0);
    (!available).then(|| "is not available".to_owned())
}

/// Returns a string property of a device; empty if it has none.
pub(crate) fn text(id: cl_device_id, what: cl_device_info) -> String {
    device::get_device_info(id, what).map(String::from).unwrap_or_default().trim().to_owned()
}

/// Returns a numeric property of a device.
pub(crate) fn number(id: cl_device_id, what: cl_device_info) -> DriverResult<u64> {
    let number = device::get_device_info(id, what).and_then(|number| match number {
        InfoType::Uint(number) => Ok(number.into()),
        InfoType::Ulong(number) => Ok(number),
        _ => Err(error_codes::CL_INVALID_VALUE),
    });
    answer::of("clGetDeviceInfo", number)
}

/// Returns the name of the platform and the version of its driver.
pub(crate) fn driver(id: cl_device_id) -> String {
    let platform = device::get_device_info(id, device::CL_DEVICE_PLATFORM).map(isize::from);
    let platform = platform.map(|platform| platform_name(platform as cl_platform_id)).unwrap_or_default();
    format!("{platform}, {}", text(id, device::CL_DRIVER_VERSION))
}

fn platform_name(platform: cl_platform_id) -> String {
    platform::get_platform_info(platform, platform::CL_PLATFORM_NAME).map(String::from).unwrap_or_default()
}

/// Returns the version of an extension, packed as OpenCL does; `None` if the device lacks it or says no version.
pub(crate) fn extension(id: cl_device_id, name: &str) -> Option<u32> {
    let listed = device::get_device_info(id, device::CL_DEVICE_EXTENSIONS_WITH_VERSION);
    let Ok(InfoType::VecNameVersion(listed)) = listed else { return None };
    let has_name = |entry: &&cl_name_version| entry.name.split(|byte| *byte == 0).next() == Some(name.as_bytes());
    listed.iter().find(has_name).map(|entry| entry.version)
}

/// Returns the types that kernels may use.
pub(crate) fn capability(id: cl_device_id) -> DeviceCapability {
    let extensions = text(id, device::CL_DEVICE_EXTENSIONS);
    let has = |extension: &str| extensions.split(' ').any(|listed| listed == extension);
    let dtypes = [("cl_khr_fp16", "float16"), ("cl_khr_fp64", "float64")];
    DeviceCapability::with(dtypes.into_iter().filter(|(extension, _)| has(extension)).map(|(_, dtype)| dtype))
}

/// Returns the number of free bytes. Only AMD's drivers report it, in KiB.
pub(crate) fn free_memory(id: cl_device_id) -> Option<u64> {
    let sizes = device::get_device_data(id, device::CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).ok()?;
    let (free, _) = sizes.split_first_chunk()?;
    (usize::from_ne_bytes(*free) as u64).checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &str) -> Result<String, Unavailable> {
        let device = |kind, name: &str, platform: &str| Device {
            id: 0,
            kind,
            name: name.to_owned(),
            platform: platform.to_owned(),
        };
        let devices = vec![
            device(device::CL_DEVICE_TYPE_CPU, "EPYC", "Intel(R) OpenCL"),
            device(device::CL_DEVICE_TYPE_GPU, "Arc", "Intel(R) OpenCL"),
            device(device::CL_DEVICE_TYPE_GPU, "H200", "NVIDIA CUDA"),
            device(device::CL_DEVICE_TYPE_ACCELERATOR, "FPGA", "Other"),
        ];
        let chosen = chosen(devices, &DeviceList::new(DEVICES, list))?;
        Ok(chosen.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn entries_take_devices_in_turn() {
        for (list, expected) in [
            (DEFAULT, "Arc H200 FPGA EPYC"),
            ("cpu, GPU", "EPYC Arc H200"),
            ("nvidia,gpu", "H200 Arc"),
            ("intel(r)", "EPYC Arc"),
            ("h200,h200,", "H200"),
        ] {
            assert_eq!(order(list).as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_list_that_means_nothing_is_told_what_there_is() {
        let Unavailable { reason, .. } = order("amd").unwrap_err();
        assert!(reason.contains("`amd`") && reason.contains("`H200` of `NVIDIA CUDA`"), "{reason}");
        assert!(order(",").is_err());
    }
}
