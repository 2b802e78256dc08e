//! The state that all simulated drivers have.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::device_memory::DeviceMemory;
use crate::error::Error;
use crate::face::Face;
use crate::faults::Faults;
use crate::host_memory::HostMemory;
use crate::lane::Lane;
use crate::settings::Settings;
use crate::signal::Signals;
use crate::virtual_memory::VirtualMemory;

/// What programs hold instead of objects of a driver: never given out twice, and no address of anything.
pub type Handle = usize;

/// How much memory a device has.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Bytes.
    pub memory: u64,
    /// Of them, those in use. May be more, after a test has made the device smaller.
    pub used: u64,
}

impl Device {
    /// One of which nothing is used.
    pub fn new(memory: u64) -> Self {
        Self { memory, used: 0 }
    }

    /// Bytes that can still be had.
    pub fn free(&self) -> u64 {
        self.memory.saturating_sub(self.used)
    }
}

/// Memory, queues of work, faults and time of a simulated driver.
pub struct Engine<F: Face> {
    /// Chooses among permitted orders.
    pub random: Rng,
    /// Virtual nanoseconds: work takes time, waiting does not.
    pub clock: u64,
    /// Calls so far, and those that are to fail.
    pub faults: Faults<F::Code>,
    /// What no correct program does, in words.
    pub violations: Vec<String>,
    /// Copies between devices of which the one that ran them could not reach both.
    pub staged_copies: u64,
    /// Those that the process may see. The face fills it when the driver starts.
    pub devices: Vec<Device>,
    /// Queues of work.
    pub lanes: BTreeMap<Handle, Lane<F>>,
    /// What work can set, reset and wait for.
    pub signals: Signals,
    /// Allocations of device memory.
    pub memory: DeviceMemory,
    /// Reserved addresses, physical memory and mappings.
    pub virtual_memory: VirtualMemory,
    /// Memory of the host that devices see: pinned, or shared.
    pub host: HostMemory,
    next_handle: Handle,
}

impl<F: Face> Engine<F> {
    /// An engine without devices. Handles are counted from `first_handle`, so that those of different drivers
    /// differ.
    pub fn new(settings: &mut Settings<F::Code>, first_handle: Handle) -> Self {
        let mut faults = Faults::default();
        settings.failures.drain(..).for_each(|planned| faults.plan(planned));
        Self {
            random: Rng::with_seed(settings.seed),
            clock: 0,
            faults,
            violations: Vec::new(),
            staged_copies: 0,
            devices: Vec::new(),
            lanes: BTreeMap::new(),
            signals: Signals::default(),
            memory: DeviceMemory::default(),
            virtual_memory: VirtualMemory::new(F::PAGE),
            host: HostMemory::new(settings.host_memory),
            next_handle: first_handle,
        }
    }

    /// A handle that nobody had before.
    pub fn new_handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// Takes memory of a device.
    pub(crate) fn charge(&mut self, device: usize, bytes: u64) -> Result<(), Error> {
        let device = self.devices.get_mut(device).ok_or(Error::Unknown)?;
        if bytes > device.free() {
            return Err(Error::OutOfDeviceMemory);
        }
        device.used += bytes;
        Ok(())
    }

    /// Gives it back.
    pub(crate) fn credit(&mut self, device: usize, bytes: u64) {
        if let Some(device) = self.devices.get_mut(device) {
            device.used -= bytes;
        }
    }
}
