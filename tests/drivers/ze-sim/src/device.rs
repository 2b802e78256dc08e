//! The devices that a process sees.

use level_zero_sys::*;

use crate::arguments::DeviceHandle;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::{Driver, Handle};

/// Nanoseconds per tick of a device's clock.
pub(crate) const TICK: u64 = 40;

/// Timestamps start this many ticks before 32 bits wrap around, as on a device that has run for minutes.
const TICKS_BEFORE_WRAP: u64 = 5_000;

/// The number of valid bits in a kernel timestamp.
pub(crate) const TIMESTAMP_BITS: u32 = 32;

/// The ordinal of the copy-only queue group.
pub(crate) const COPY_GROUP: u32 = 1;

/// A queue group: what its queues can do, the longest fill pattern, and the number of queues.
pub(crate) struct QueueGroup {
    pub(crate) flags: u32,
    pub(crate) longest_pattern: usize,
    pub(crate) queues: u32,
}

const COMPUTE: u32 = ze_command_queue_group_property_flag_t::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE.0;
const COPY: u32 = ze_command_queue_group_property_flag_t::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY.0;

/// The queue groups, by ordinal.
pub(crate) const QUEUE_GROUPS: [QueueGroup; 2] = [
    QueueGroup { flags: COMPUTE | COPY, longest_pattern: 128, queues: 4 },
    QueueGroup { flags: COPY, longest_pattern: 16, queues: 2 },
];

pub(crate) struct Device {
    pub(crate) handle: Handle,
    /// The handle of its memory in system management.
    pub(crate) memory_handle: Handle,
    /// Its number in the machine, which `ZE_AFFINITY_MASK` refers to.
    pub(crate) number: usize,
    /// Whether the device is lost: every call on it then fails.
    pub(crate) lost: bool,
}

impl Device {
    pub(crate) fn has_handle(&self, handle: Handle) -> bool {
        self.handle == handle || self.memory_handle == handle
    }

    /// Returns `00000000-7e51-…`, where the last two bytes are the number.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut bytes = [0x7e, 0x51, 0x40, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
        bytes[14..].copy_from_slice(&(self.number as u16).to_be_bytes());
        bytes
    }

    /// Returns the PCI address. Each bus is different, so no device can pass for another.
    pub(crate) fn pci_address(&self) -> ze_pci_address_ext_t {
        ze_pci_address_ext_t { domain: 0x0b, bus: 0x20 + self.number as u32, device: 0x05, function: 0 }
    }
}

impl Driver {
    /// Creates the devices visible to the process, once, in the machine's order.
    pub(crate) fn find_devices(&mut self) {
        if !self.devices.is_empty() {
            return;
        }
        let is_seen = |number: &usize| match &self.settings.affinity {
            Some(chosen) => chosen.contains(number),
            None => true,
        };
        let seen: Vec<usize> = (0..self.machine.devices).filter(is_seen).collect();
        for number in seen {
            let (handle, memory_handle) = (self.engine.new_handle(), self.engine.new_handle());
            self.devices.push(Device { handle, memory_handle, number, lost: false });
            self.engine.devices.push(sim_engine::Device::new(self.machine.memory));
        }
    }

    /// Returns the index of a device in the list of devices.
    pub(crate) fn device(&mut self, device: DeviceHandle) -> Outcome<usize> {
        let found = self.devices.iter().position(|own| own.handle == device.number);
        found.ok_or_else(|| self.unknown("device", device.number))
    }

    /// Records the use of a handle of nothing live, which no correct program does, and returns the error for it.
    pub(crate) fn unknown(&mut self, what: &str, handle: Handle) -> Refusal {
        self.violation(format!("a call uses {handle:#x}, which is not a live {what}"));
        Refusal::INVALID_ARGUMENT
    }

    pub(crate) fn is_lost(&self, device: usize) -> bool {
        self.devices.get(device).is_some_and(|device| device.lost)
    }

    /// Whether all of these devices are lost. An event pool works as long as one of its devices does.
    pub(crate) fn are_all_lost(&self, devices: &[usize]) -> bool {
        !devices.is_empty() && devices.iter().all(|device| self.is_lost(*device))
    }

    /// Drops all remaining work of a device and makes every later call on it fail.
    pub(crate) fn lose(&mut self, device: usize) {
        if let Some(state) = self.devices.get_mut(device) {
            state.lost = true;
        }
        self.engine.drop_work(|_, lane| lane.device == device);
    }

    /// Makes lost devices usable again.
    pub(crate) fn find_lost(&mut self) {
        self.devices.iter_mut().for_each(|device| device.lost = false);
    }

    pub(crate) fn memory_of(&self, device: usize) -> sim_engine::Device {
        self.engine.devices.get(device).copied().unwrap_or(sim_engine::Device::new(0))
    }

    /// Returns the largest allocation without a descriptor that lifts the limit.
    pub(crate) fn max_allocation(&self, device: usize) -> u64 {
        self.settings.max_allocation.min(self.memory_of(device).memory)
    }

    /// Fills in the properties of a device, except those that describe the structure itself.
    pub(crate) fn describe_device(&self, device: usize, properties: &mut ze_device_properties_t) {
        let Some(own) = self.devices.get(device) else { return };
        let integrated = ze_device_property_flag_t::ZE_DEVICE_PROPERTY_FLAG_INTEGRATED.0;
        // Nanoseconds per tick, or ticks per second, depending on the version of the structure.
        let in_frequency = properties.stype == ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
        *properties = ze_device_properties_t {
            stype: properties.stype,
            pNext: properties.pNext,
            type_: ze_device_type_t::ZE_DEVICE_TYPE_GPU,
            vendorId: 0x8086,
            deviceId: 0x7e51,
            flags: if self.settings.has(Quirk::Integrated) { integrated } else { 0 },
            subdeviceId: 0,
            coreClockRate: 1_000,
            maxMemAllocSize: self.max_allocation(device),
            maxHardwareContexts: 1 << 16,
            maxCommandQueuePriority: 0,
            numThreadsPerEU: 8,
            physicalEUSimdWidth: 8,
            numEUsPerSubslice: 8,
            numSubslicesPerSlice: 4,
            numSlices: 2,
            timerResolution: if in_frequency { 1_000_000_000 / TICK } else { TICK },
            timestampValidBits: TIMESTAMP_BITS,
            kernelTimestampValidBits: TIMESTAMP_BITS,
            uuid: ze_device_uuid_t { id: own.uuid() },
            name: text("Simulated Level Zero device"),
        };
    }
}

/// Converts virtual time to ticks, truncated to the valid bits.
pub(crate) fn ticks(clock: u64) -> u64 {
    let wrap = 1 << TIMESTAMP_BITS;
    (wrap - TICKS_BEFORE_WRAP + clock / TICK) % wrap
}

/// Converts a string to a zero-terminated C array, which must be longer.
pub(crate) fn text<const N: usize>(text: &str) -> [std::ffi::c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_wrap_soon() {
        let wraps_at = TICKS_BEFORE_WRAP * TICK;
        assert_eq!(ticks(wraps_at - TICK), u64::from(u32::MAX));
        assert_eq!([ticks(wraps_at), ticks(wraps_at + 2 * TICK)], [0, 2]);
    }
}
