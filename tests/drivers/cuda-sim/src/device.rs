//! The devices that a process sees.

use crate::code::{Code, Outcome};
use crate::state::Driver;

/// What the driver stores for a device besides the engine's state.
pub(crate) struct Device {
    /// Its number in the machine, which `CUDA_VISIBLE_DEVICES` refers to.
    pub(crate) number: usize,
    /// How often its primary context was created.
    pub(crate) contexts_made: u64,
}

/// Returns `GPU-5cda5130-0000-4000-8000-…`, where the last two bytes are the number.
pub(crate) fn uuid(number: usize) -> [u8; 16] {
    let mut bytes = [0x5c, 0xda, 0x51, 0x30, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
    bytes[14..].copy_from_slice(&(number as u16).to_be_bytes());
    bytes
}

fn uuid_text(number: usize) -> String {
    let hex: String = uuid(number).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The PCI domain and device number, which all devices share. Each bus is different, so no device can pass for another.
pub(crate) const PCI_DOMAIN: i32 = 0x0a;
pub(crate) const PCI_DEVICE: i32 = 0x03;

pub(crate) fn pci_bus(number: usize) -> i32 {
    0x10 + number as i32
}

/// Returns the devices that `CUDA_VISIBLE_DEVICES` selects, in its order. Entries are numbers or unique prefixes of
/// UUIDs. The first entry that names no device, or one already listed, ends the list.
fn visible(count: usize, wanted: Option<&str>) -> Vec<usize> {
    let Some(wanted) = wanted else { return (0..count).collect() };
    let mut chosen = Vec::new();
    for entry in wanted.split(',').map(str::trim) {
        let number = match entry.starts_with("GPU-") {
            true => {
                let mut fitting = (0..count).filter(|number| uuid_text(*number).starts_with(entry));
                fitting.next().filter(|_| fitting.next().is_none())
            }
            false => entry.parse().ok().filter(|number| *number < count),
        };
        match number {
            Some(number) if !chosen.contains(&number) => chosen.push(number),
            _ => break,
        }
    }
    chosen
}

impl Driver {
    pub(crate) fn find_devices(&mut self) -> Outcome {
        let wanted = std::env::var_os("CUDA_VISIBLE_DEVICES").map(|text| text.to_string_lossy().into_owned());
        let found = visible(self.settings.common.devices, wanted.as_deref());
        self.engine.devices = vec![sim_engine::Device::new(self.settings.common.memory); found.len()];
        self.devices = found.into_iter().map(|number| Device { number, contexts_made: 0 }).collect();
        if self.devices.is_empty() { Err(Code::NO_DEVICE) } else { Ok(()) }
    }

    /// Returns the index of a `CUdevice` in the list of devices.
    pub(crate) fn device(&self, device: i32) -> Outcome<usize> {
        let index = usize::try_from(device).ok().filter(|index| *index < self.devices.len());
        index.ok_or(Code::INVALID_DEVICE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_chosen_as_the_real_driver_does() {
        let cases: [(Option<&str>, &[usize]); 10] = [
            (None, &[0, 1, 2]),
            (Some(""), &[]),
            (Some("2,0"), &[2, 0]),
            (Some("1,7,0"), &[1]),
            (Some("-1"), &[]),
            (Some("1,1"), &[1]),
            (Some(" 1 , 2"), &[1, 2]),
            (Some("GPU-5cda5130-0000-4000-8000-000000000002,0"), &[2, 0]),
            (Some("GPU-5c"), &[]),
            (Some("GPU-none"), &[]),
        ];
        for (wanted, chosen) in cases {
            assert_eq!(visible(3, wanted), chosen, "{wanted:?}");
        }
        assert_eq!(visible(1, Some("GPU-5c")), [0]);
    }
}
