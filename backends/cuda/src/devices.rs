//! The devices of the machine and their properties. Creates no context on any of them.
#![allow(unsafe_code)] // calls the driver

use std::ffi::{CStr, c_char, c_int};

use accelerator_core::backend_kit::Probed;
use accelerator_core::{DeviceCapability, DeviceProperties, DriverError, DriverResult, PciAddress, Unavailable, Uuid};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUresult as Code, CUuuid};

use crate::answer;
use crate::calls::call;
use crate::context::FORKED;
use crate::library;

static COUNTED: Probed<u32> = Probed::new(FORKED);

/// Returns the number of devices. Asks only once per process: the driver also reads `CUDA_VISIBLE_DEVICES` only once.
pub(crate) fn count() -> Result<u32, Unavailable> {
    COUNTED.get(asked).copied()
}

/// Checks that there are devices, with the error for opening one without probing first.
pub(crate) fn opened() -> DriverResult<()> {
    COUNTED.opened("cuInit", asked).map(|_| ())
}

fn asked() -> Result<u32, Unavailable> {
    if !library::is_there() {
        let reason = "there is no NVIDIA driver: libcuda was not found or could not be loaded; install the driver";
        return Err(Unavailable::new(reason));
    }
    let mut count = 0;
    // SAFETY: The only flag is 0.
    let initialised = unsafe { call!(cuInit(0)) };
    // SAFETY: The call writes a number.
    initialised.and_then(|()| unsafe { call!(cuDeviceGetCount(&mut count)) }).map_err(|error| why(&error))?;
    match u32::try_from(count) {
        Ok(0) | Err(_) => Err(none()),
        Ok(count) => Ok(count),
    }
}

fn why(error: &DriverError) -> Unavailable {
    if answer::is(error, Code::CUDA_ERROR_NO_DEVICE) {
        return none();
    }
    let reason = match answer::is(error, Code::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) {
        true => {
            format!("{error}: the driver's library and its kernel module have different versions; reboot the machine")
        }
        false => format!("the NVIDIA driver cannot be initialized: {error}"),
    };
    Unavailable::new(reason)
}

fn none() -> Unavailable {
    let reason = "the NVIDIA driver finds no device";
    let reason = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => format!("{reason} with CUDA_VISIBLE_DEVICES={visible}"),
        Err(_) => reason.to_owned(),
    };
    Unavailable::new(reason)
}

pub(crate) fn device(ordinal: u32) -> DriverResult<CUdevice> {
    let mut device = 0;
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: The call writes a number.
    unsafe { call!(cuDeviceGet(&mut device, ordinal)) }.map(|()| device)
}

pub(crate) fn attribute(device: CUdevice, attribute: Attribute) -> DriverResult<c_int> {
    let mut value = 0;
    // SAFETY: The call writes a number.
    unsafe { call!(cuDeviceGetAttribute(&mut value, attribute as c_int, device)) }.map(|()| value)
}

/// Returns the device's properties; `stream_priorities` come from its context.
pub(crate) fn properties(device: CUdevice, stream_priorities: (i32, i32)) -> DriverResult<DeviceProperties> {
    let mut total = 0;
    // SAFETY: The call writes a number.
    unsafe { call!(cuDeviceTotalMem(&mut total, device)) }?;
    let mut properties = DeviceProperties::new(name(device)?, total as u64);
    properties.driver = driver(device)?;
    properties.alignment = 256; // CUDA guarantees this for every allocation
    properties.stream_priorities = stream_priorities;
    properties.capability = DeviceCapability::with(DTYPES);
    properties.uuid = uuid(device);
    properties.pci_address = pci_address(device);
    Ok(properties)
}

fn name(device: CUdevice) -> DriverResult<String> {
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: The call writes at most this many bytes, with a 0 at the end.
    unsafe { call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device)) }?;
    let name = name.map(|character| character as u8);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().trim().to_owned())
}

fn driver(device: CUdevice) -> DriverResult<String> {
    let mut version = 0;
    // SAFETY: The call writes a number.
    unsafe { call!(cuDriverGetVersion(&mut version)) }?;
    let (major, minor) = compute_capability(device)?;
    let (cuda, update) = (version / 1000, version % 1000 / 10);
    Ok(format!("driver for CUDA {cuda}.{update}, compute capability {major}.{minor}"))
}

pub(crate) fn compute_capability(device: CUdevice) -> DriverResult<(i32, i32)> {
    let major = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

fn uuid(device: CUdevice) -> Option<Uuid> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: The call writes 16 bytes.
    unsafe { call!(cuDeviceGetUuid(&mut uuid, device)) }.ok()?;
    Some(Uuid(uuid.bytes.map(|byte| byte as u8)))
}

fn pci_address(device: CUdevice) -> Option<PciAddress> {
    let part = |asked| attribute(device, asked).ok().and_then(|value| u32::try_from(value).ok());
    Some(PciAddress {
        domain: part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        bus: part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        device: part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        function: 0, // as in `cuDeviceGetPCIBusId`
    })
}

/// Types in addition to those that every device has.
const DTYPES: [&str; 5] = ["float16", "bfloat16", "float64", "complex64", "complex128"];
