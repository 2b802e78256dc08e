//! The state that all simulated drivers share.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

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

/// What programs hold in place of driver objects. A handle is never reused and is not an address.
pub type Handle = usize;

/// A device's memory.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Total bytes.
    pub memory: u64,
    /// Bytes in use. They may exceed the total after a test has shrunk the device.
    pub used: u64,
}

impl Device {
    /// Creates a device with nothing in use.
    pub fn new(memory: u64) -> Self {
        Self { memory, used: 0 }
    }

    /// Returns the bytes that can still be allocated.
    pub fn free(&self) -> u64 {
        self.memory.saturating_sub(self.used)
    }
}

/// Memory, queues of work, faults and time of a simulated driver.
pub struct Engine<F: Face> {
    /// Chooses among permitted orders.
    pub random: Rng,
    /// Virtual nanoseconds. Work takes time; waiting does not.
    pub clock: u64,
    /// With a real clock: when the virtual clock was 0.
    started: Option<Instant>,
    /// The number of calls so far, and the calls that are to fail.
    pub faults: Faults<F::Code>,
    /// Descriptions of what no correct program does.
    pub violations: Vec<String>,
    /// Copies between two devices where the device that ran the copy could not reach both.
    pub staged_copies: u64,
    /// The devices visible to the process. The face fills this in when the driver starts.
    pub devices: Vec<Device>,
    /// Queues of work.
    pub lanes: BTreeMap<Handle, Lane<F>>,
    /// What work can set, reset and wait for.
    pub signals: Signals,
    /// Allocations of device memory.
    pub memory: DeviceMemory,
    /// Reserved addresses, physical memory and mappings.
    pub virtual_memory: VirtualMemory,
    /// Host memory visible to devices: pinned or shared.
    pub host: HostMemory,
    next_handle: Handle,
}

impl<F: Face> Engine<F> {
    /// Creates an engine without devices. Handles count up from `first_handle`, so that those of different drivers
    /// differ.
    pub fn new(settings: &mut Settings<F::Code>, first_handle: Handle) -> Self {
        let mut faults = Faults::default();
        settings.failures.drain(..).for_each(|planned| faults.plan(planned));
        Self {
            random: Rng::with_seed(settings.seed),
            clock: 0,
            started: settings.takes_time.then(Instant::now),
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

    /// With a real clock, moves the virtual clock on to the present, unless it is ahead.
    pub(crate) fn catch_up(&mut self) {
        self.clock = self.clock.max(self.now().unwrap_or(0));
    }

    /// With a real clock, sleeps until the virtual clock is no longer ahead, and moves it on to the present.
    pub(crate) fn take_time(&mut self) {
        let ahead = self.now().map_or(0, |now| self.clock.saturating_sub(now));
        if ahead > 0 {
            thread::sleep(Duration::from_nanos(ahead));
        }
        self.catch_up();
    }

    fn now(&self) -> Option<u64> {
        self.started.map(|started| started.elapsed().as_nanos() as u64)
    }

    /// Returns a handle that has never been used.
    pub fn new_handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// Charges memory to a device.
    pub(crate) fn charge(&mut self, device: usize, bytes: u64) -> Result<(), Error> {
        let device = self.devices.get_mut(device).ok_or(Error::Unknown)?;
        if bytes > device.free() {
            return Err(Error::OutOfDeviceMemory);
        }
        device.used += bytes;
        Ok(())
    }

    /// Returns charged memory to a device.
    pub(crate) fn credit(&mut self, device: usize, bytes: u64) {
        if let Some(device) = self.devices.get_mut(device) {
            device.used -= bytes;
        }
    }
}
