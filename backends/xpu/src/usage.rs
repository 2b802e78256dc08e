//! How much device memory is free.
#![allow(unsafe_code)] // calls the driver

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use accelerator_core::{DriverResult, MemoryInfo, MemoryInfoSource};
use level_zero_sys::{
    ZE_DEVICE_USABLEMEM_SIZE_PROPERTIES_EXT_NAME, ze_device_properties_t, ze_device_usablemem_size_ext_properties_t,
    zes_device_handle_t, zes_device_properties_t, zes_driver_handle_t, zes_mem_handle_t, zes_mem_state_t,
};

use crate::answer::ask;
use crate::device::Device;
use crate::devices::{Found, list, sum};

/// The best available source for the amount of free memory. Without any, allocations are counted.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Whether the driver reports it with the properties of the device.
    told: bool,
    total: u64,
    /// The maximum number of bytes that can be used; the driver needs the rest. PyTorch uses the same share.
    usable: u64,
    /// The memories of the device, if system management is available.
    managed: OnceLock<Vec<Memory>>,
}

/// A memory of system management (sysman).
#[derive(Clone, Copy, Debug)]
struct Memory(zes_mem_handle_t);

// SAFETY: The handle is only a name; any thread may use it.
unsafe impl Send for Memory {}
// SAFETY: As for `Send`.
unsafe impl Sync for Memory {}

impl Usage {
    pub(crate) fn new(described: &ze_device_properties_t, extensions: &[String], total: u64) -> Self {
        let name = ZE_DEVICE_USABLEMEM_SIZE_PROPERTIES_EXT_NAME;
        let told = extensions.iter().any(|extension| extension.as_bytes() == name.to_bytes());
        let percent = if Found::is_integrated(described) { 94 } else { 95 };
        let usable = (u128::from(total) * percent / 100) as u64;
        Self { told, total, usable, managed: OnceLock::new() }
    }

    pub(crate) fn info(&self, device: &Device) -> DriverResult<MemoryInfo> {
        device.health.check()?;
        let driver = self.told(device).or_else(|| self.managed(device));
        let (free, source) = match driver {
            Some(free) => (free, MemoryInfoSource::Driver),
            None => {
                let handed_out = device.handed_out.load(Ordering::Relaxed);
                (self.usable.saturating_sub(handed_out), MemoryInfoSource::Accounting)
            }
        };
        Ok(MemoryInfo::new(free.min(self.total), self.total, source))
    }

    fn told(&self, device: &Device) -> Option<u64> {
        if !self.told {
            return None;
        }
        let unknown = u64::MAX;
        let mut usable = ze_device_usablemem_size_ext_properties_t { currUsableMemSize: unknown, ..Default::default() };
        let chain = (&raw mut usable).cast::<c_void>();
        let mut properties = ze_device_properties_t { pNext: chain, ..Default::default() };
        // SAFETY: The call fills a chain of two structures, whose `stype` is set.
        unsafe { ask!(device.api, zeDeviceGetProperties(device.raw(), &mut properties)) }.ok()?;
        Some(usable.currUsableMemSize).filter(|free| *free != unknown)
    }

    fn managed(&self, device: &Device) -> Option<u64> {
        let memories = match self.managed.get() {
            Some(memories) => memories,
            None => {
                let found = memories(device).ok()?; // another attempt may succeed
                self.managed.get_or_init(|| found)
            }
        };
        let free_of = |memory: &Memory| {
            let mut state = zes_mem_state_t::default();
            // SAFETY: The call fills a structure whose `stype` is set.
            unsafe { ask!(device.api, zesMemoryGetState(memory.0, &mut state)) }.ok()?;
            Some(state.free)
        };
        let free: Vec<u64> = memories.iter().map(free_of).collect::<Option<_>>()?;
        (!free.is_empty()).then(|| sum(free.into_iter()))
    }
}

/// Returns the device's memories, as far as system management reports them.
fn memories(device: &Device) -> DriverResult<Vec<Memory>> {
    let Some(managed) = managed_device(device)? else { return Ok(Vec::new()) };
    let ask = |count: *mut u32, memories: *mut zes_mem_handle_t| {
        // SAFETY: The call writes a number and at most that many handles.
        unsafe { ask!(device.api, zesDeviceEnumMemoryModules(managed, count, memories)) }
    };
    Ok(list(ptr::null_mut(), ask)?.into_iter().map(Memory).collect())
}

/// Returns the device's handle in system management. It is found by UUID. If `zesInit` does not exist, it is the
/// device's own handle, which is valid there only if `ZES_ENABLE_SYSMAN=1` was set when the process started.
fn managed_device(device: &Device) -> DriverResult<Option<zes_device_handle_t>> {
    // Some loaders crash if `zesInit` is called with a driver that does not support it.
    let knows = device.found.api_version(device.api)? >= (1, 5);
    if !knows || device.api.zesInit().is_err() {
        let enabled = std::env::var_os("ZES_ENABLE_SYSMAN").is_some_and(|value| value == "1");
        return Ok(enabled.then_some(device.raw().cast()));
    }
    // SAFETY: 0 is the only flag.
    unsafe { ask!(device.api, zesInit(0)) }?;
    let uuid = crate::devices::described(device.api, device.raw())?.uuid.id;
    let ask = |count: *mut u32, drivers: *mut zes_driver_handle_t| {
        // SAFETY: The call writes a number and at most that many handles.
        unsafe { ask!(device.api, zesDriverGet(count, drivers)) }
    };
    for driver in list(ptr::null_mut(), ask)? {
        let ask = |count: *mut u32, devices: *mut zes_device_handle_t| {
            // SAFETY: As above.
            unsafe { ask!(device.api, zesDeviceGet(driver, count, devices)) }
        };
        for candidate in list(ptr::null_mut(), ask)? {
            if managed_uuid(device, candidate)? == uuid {
                return Ok(Some(candidate));
            }
        }
    }
    Ok(None)
}

fn managed_uuid(device: &Device, managed: zes_device_handle_t) -> DriverResult<[u8; 16]> {
    let core = ze_device_properties_t::default();
    let mut properties = zes_device_properties_t { core, ..Default::default() };
    // SAFETY: The call fills a structure whose `stype` is set.
    unsafe { ask!(device.api, zesDeviceGetProperties(managed, &mut properties)) }?;
    Ok(properties.core.uuid.id)
}
