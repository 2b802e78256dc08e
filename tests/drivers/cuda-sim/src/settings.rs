//! What the environment asks for, read at the first call of the process.

use crate::code::Code;
use crate::faults::Planned;

/// A driver of this version is simulated: CUDA 13.0, or 10.0 as the old one.
const DEFAULT_VERSION: i32 = if cfg!(feature = "old-driver") { 10_000 } else { 13_000 };

/// What `CUDA_SIM_FAIL_AT` fails with when it names no code.
const DEFAULT_FAILURE: Code = Code::UNKNOWN;

pub(crate) struct Settings {
    pub(crate) devices: usize,
    /// Bytes of each device.
    pub(crate) memory: u64,
    /// Bytes of pinned host memory.
    pub(crate) host_memory: u64,
    /// Devices whose memory one device can be let into.
    pub(crate) peers: usize,
    pub(crate) seed: u64,
    pub(crate) driver_version: i32,
    /// Compute capability, major and minor.
    pub(crate) capability: (i32, i32),
    pub(crate) failures: Vec<Planned>,
    pub(crate) failure_at: Option<Planned>,
    /// A setting that cannot be read; `cuInit` then fails, so that no test runs with less than it asked for.
    pub(crate) mistake: bool,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        let mut environment = Environment { mistake: false };
        Self {
            devices: environment.read("CUDA_SIM_DEVICES", |text| text.parse().ok()).unwrap_or(1),
            memory: environment.read("CUDA_SIM_MEMORY", size).unwrap_or(16 << 30),
            host_memory: environment.read("CUDA_SIM_HOST_MEMORY", size).unwrap_or(4 << 30),
            peers: environment.read("CUDA_SIM_PEERS", |text| text.parse().ok()).unwrap_or(8),
            seed: environment.read("CUDA_SIM_SEED", |text| text.parse().ok()).unwrap_or(0),
            driver_version: environment.read("CUDA_SIM_DRIVER_VERSION", version).unwrap_or(DEFAULT_VERSION),
            capability: environment.read("CUDA_SIM_CAPABILITY", capability).unwrap_or((9, 0)),
            failures: environment.read("CUDA_SIM_FAIL", failures).unwrap_or_default(),
            failure_at: environment.read("CUDA_SIM_FAIL_AT", failure_at),
            mistake: environment.mistake,
        }
    }
}

struct Environment {
    mistake: bool,
}

impl Environment {
    fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = std::env::var_os(name)?;
        let text = text.to_string_lossy();
        let value = parse(text.trim());
        if value.is_none() {
            eprintln!("simulated CUDA: cannot read {name}={text}; cuInit will fail");
            self.mistake = true;
        }
        value
    }
}

/// 1000 times the major number and 10 times the minor.
fn version(text: &str) -> Option<i32> {
    text.parse().ok()
}

fn capability(text: &str) -> Option<(i32, i32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Failures between commas, each as `name@nth=code`, with `*` for every call of that name.
fn failures(text: &str) -> Option<Vec<Planned>> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(failure).collect()
}

fn failure(entry: &str) -> Option<Planned> {
    let (call, code) = entry.split_once('=')?;
    let (name, nth) = call.split_once('@')?;
    let nth = if nth == "*" { 0 } else { ordinal(nth)? };
    Some(Planned { name: Some(name.to_owned()), nth, code: Code(code.parse().ok()?) })
}

/// `nth`, or `nth=code`.
fn failure_at(text: &str) -> Option<Planned> {
    let (nth, code) = match text.split_once('=') {
        Some((nth, code)) => (nth, Code(code.parse().ok()?)),
        None => (text, DEFAULT_FAILURE),
    };
    Some(Planned { name: None, nth: ordinal(nth)?, code })
}

fn ordinal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|nth| *nth > 0)
}

/// A number of bytes, with K, M or G behind it for powers of 1024.
fn size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' | 'k' => 10,
        'M' | 'm' => 20,
        'G' | 'g' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;

    #[test]
    fn sizes_are_read() {
        let read = ["64", "2K", "3m", "16G", "", "x", "9999999999999G"].map(size);
        assert_eq!(read, [Some(64), Some(2048), Some(3 << 20), Some(16 << 30), None, None, None]);
    }

    #[test]
    fn planned_failures_are_read() {
        let mut faults = Faults::default();
        let planned = failures("cuEventRecord@2=700, cuMemAlloc_v2@*=2,");
        planned.into_iter().flatten().for_each(|planned| faults.plan(planned));
        let calls = ["cuEventRecord", "cuMemAlloc_v2", "cuEventRecord", "cuEventRecord", "cuMemAlloc_v2"];
        let failed = calls.map(|name| faults.count(name).err().map(|code| code.0));
        assert_eq!(failed, [None, Some(2), Some(700), None, Some(2)]);
    }

    #[test]
    fn a_failure_at_any_call_is_read() {
        let mut faults = Faults::default();
        failure_at("3=700").into_iter().for_each(|planned| faults.plan(planned));
        let failed = ["a", "b", "a", "b"].map(|name| faults.count(name).err().map(|code| code.0));
        assert_eq!(failed, [None, None, Some(700), None]);
        assert_eq!(failure_at("7").map(|planned| (planned.nth, planned.code)), Some((7, DEFAULT_FAILURE)));
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in ["cuEventRecord", "cuEventRecord@0=1", "cuEventRecord@1", "a@1=b", "a@2=1,b"] {
            assert!(failures(wrong).is_none(), "{wrong}");
        }
        for wrong in ["0", "", "x", "1=x"] {
            assert!(failure_at(wrong).is_none(), "{wrong}");
        }
    }
}
