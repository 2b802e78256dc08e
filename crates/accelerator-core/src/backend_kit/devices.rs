//! The devices that a user wants.

use std::env;

use crate::types::Unavailable;

/// A user's choice of devices: a list of types and names such as `gpu,nvidia,cpu`, from a variable of the environment.
///
/// Each entry selects the matching devices that no earlier entry selected. So the list also orders the devices, and
/// those that match no entry are left out.
///
/// ```
/// use accelerator_core::backend_kit::DeviceList;
///
/// #[derive(Debug, PartialEq)]
/// struct Found {
///     is_gpu: bool,
///     name: &'static str,
/// }
///
/// let found = vec![Found { is_gpu: false, name: "EPYC" }, Found { is_gpu: true, name: "Radeon" }];
/// let list = DeviceList::read("ACCELERATOR_MINE_DEVICES", "gpu,cpu");
/// let is_of_type = |device: &Found, name: &str| match name {
///     "gpu" => Some(device.is_gpu),
///     "cpu" => Some(!device.is_gpu),
///     _ => None,
/// };
/// let chosen = list.choose(found, is_of_type, |device| vec![device.name])?;
/// assert_eq!(chosen[0].name, "Radeon");
/// # Ok::<(), accelerator_core::Unavailable>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceList {
    variable: &'static str,
    text: String,
}

impl DeviceList {
    /// Reads the list from an environment variable. Without a value, it is `usual`.
    pub fn read(variable: &'static str, usual: &str) -> Self {
        let text = env::var_os(variable).filter(|text| !text.is_empty());
        Self::new(variable, &text.map_or(usual.into(), |text| text.to_string_lossy().into_owned()))
    }

    /// Makes a list from text, as if the variable had this value.
    pub fn new(variable: &'static str, text: &str) -> Self {
        Self { variable, text: text.to_owned() }
    }

    /// Chooses among the devices of the machine.
    ///
    /// An entry names a type, for which `is_of_type` tells whether a device is of that type; it gets the entry in lower
    /// case, and returns `None` if there is no such type. Any other entry is a part of one of the device's names, in
    /// upper or lower case: its own name first, then that of its platform, if it has one.
    ///
    /// # Errors
    /// If the list selects none, the reason, with the names of all devices.
    pub fn choose<D>(
        &self,
        mut devices: Vec<D>,
        is_of_type: fn(&D, &str) -> Option<bool>,
        names: fn(&D) -> Vec<&str>,
    ) -> Result<Vec<D>, Unavailable> {
        let is_meant = |device: &D, entry: &str| {
            let contains = |name: &str| !entry.is_empty() && name.to_lowercase().contains(entry);
            is_of_type(device, entry).unwrap_or_else(|| names(device).into_iter().any(contains))
        };
        let mut chosen = Vec::new();
        for entry in self.text.split(',').map(|entry| entry.trim().to_lowercase()) {
            chosen.extend(devices.extract_if(.., |device| is_meant(device, &entry)));
        }
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let quoted = |device: &D| names(device).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" of ");
        let all = devices.iter().map(quoted).collect::<Vec<_>>().join(", ");
        let (variable, text) = (self.variable, &self.text);
        Err(Unavailable::new(format!("{variable} is `{text}`, which matches none of the devices: {all}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &str) -> Result<String, Unavailable> {
        let devices =
            vec![("cpu", "EPYC", "Intel(R) OpenCL"), ("gpu", "Arc", "Intel(R) OpenCL"), ("gpu", "H200", "NVIDIA CUDA")];
        let is_of_type =
            |device: &(&str, &str, &str), name: &str| ["cpu", "gpu"].contains(&name).then(|| device.0 == name);
        let chosen = DeviceList::new("DEVICES", list).choose(devices, is_of_type, |device| vec![device.1, device.2])?;
        Ok(chosen.iter().map(|device| device.1).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn entries_take_devices_in_turn() {
        for (list, expected) in [
            ("gpu,cpu", "Arc H200 EPYC"),
            ("cpu, GPU", "EPYC Arc H200"),
            ("nvidia,gpu", "H200 Arc"),
            ("INTEL(r)", "EPYC Arc"),
            ("h200,h200,", "H200"),
        ] {
            assert_eq!(order(list).as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_list_that_means_nothing_is_told_what_there_is() {
        let all = "`EPYC` of `Intel(R) OpenCL`, `Arc` of `Intel(R) OpenCL`, `H200` of `NVIDIA CUDA`";
        for list in ["amd", ",", "c p u"] {
            let reason = format!("DEVICES is `{list}`, which matches none of the devices: {all}");
            assert_eq!(order(list).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn a_variable_that_is_not_set_leaves_the_usual_list() {
        assert_eq!(DeviceList::read("ACCELERATOR_NO_SUCH_VARIABLE", "gpu,cpu").text, "gpu,cpu");
    }
}
