//! Settings from the environment, read at the first call of the process.

use crate::face::{Code, Face};
use crate::faults::Planned;

/// Settings that all simulated drivers share.
#[derive(Clone, Debug)]
pub struct Settings<C> {
    /// The number of devices: `DEVICES`.
    pub devices: usize,
    /// Bytes of memory of each device: `MEMORY`.
    pub memory: u64,
    /// Bytes of host memory that devices can see: `HOST_MEMORY`.
    pub host_memory: u64,
    /// `SEED`
    pub seed: u64,
    /// Whether work takes as long as it says: `CLOCK`, which is `real` or `virtual`.
    pub takes_time: bool,
    /// The failures to inject: `FAIL` and `FAIL_AT`. The engine removes them from here.
    pub failures: Vec<Planned<C>>,
}

impl<C: Code> Settings<C> {
    /// Reads the settings.
    pub fn read(environment: &mut Environment) -> Self {
        let failures = environment.read("FAIL", failures).unwrap_or_default();
        Self {
            devices: environment.read("DEVICES", number).unwrap_or(1),
            memory: environment.read("MEMORY", size).unwrap_or(16 << 30),
            host_memory: environment.read("HOST_MEMORY", size).unwrap_or(4 << 30),
            seed: environment.read("SEED", number).unwrap_or(0),
            takes_time: environment.read("CLOCK", clock).unwrap_or(false),
            failures: failures.into_iter().chain(environment.read("FAIL_AT", failure_at)).collect(),
        }
    }
}

/// The variables of a simulated driver.
#[derive(Debug)]
pub struct Environment {
    prefix: &'static str,
    api: &'static str,
    start: &'static str,
    mistake: bool,
}

impl Environment {
    /// Reads a face's variables. Messages name its API and the call that starts it.
    pub fn of<F: Face>(api: &'static str, start: &'static str) -> Self {
        Self { prefix: F::PREFIX, api, start, mistake: false }
    }

    /// Reads a variable, named without the prefix. Returns `None` if it is unset or invalid.
    pub fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let name = format!("{}{name}", self.prefix);
        let text = std::env::var_os(&name)?;
        let text = text.to_string_lossy();
        let value = parse(text.trim());
        if value.is_none() {
            eprintln!("simulated {}: cannot read {name}={text}; {} will fail", self.api, self.start);
            self.mistake = true;
        }
        value
    }

    /// Whether a variable was invalid. The driver must then not start, so that no test runs with less than it
    /// requested.
    pub fn mistake(&self) -> bool {
        self.mistake
    }
}

/// Parses a number, for [`Environment::read`].
pub fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Parses a number of bytes, optionally followed by K, M or G for powers of 1024.
pub fn size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' | 'k' => 10,
        'M' | 'm' => 20,
        'G' | 'g' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn clock(text: &str) -> Option<bool> {
    match text {
        "real" => Some(true),
        "virtual" => Some(false),
        _ => None,
    }
}

/// Parses failures, separated by commas. Each is `name@nth=code`, with `*` for every call of that name.
fn failures<C: Code>(text: &str) -> Option<Vec<Planned<C>>> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(failure).collect()
}

fn failure<C: Code>(entry: &str) -> Option<Planned<C>> {
    let (call, code) = entry.split_once('=')?;
    let (name, nth) = call.split_once('@')?;
    let lasts = nth == "*";
    let nth = if lasts { 1 } else { ordinal(nth)? };
    Some(Planned { name: Some(name.to_owned()), nth, lasts, code: C::parse(code)? })
}

/// Parses `nth` or `nth=code`.
fn failure_at<C: Code>(text: &str) -> Option<Planned<C>> {
    let (nth, code) = match text.split_once('=') {
        Some((nth, code)) => (nth, C::parse(code)?),
        None => (text, C::UNKNOWN),
    };
    Some(Planned { name: None, nth: ordinal(nth)?, lasts: false, code })
}

fn ordinal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|nth| *nth > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::faults::Faults;

    /// A code that is just its number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Number(i32);

    impl From<Error> for Number {
        fn from(_: Error) -> Self {
            Self(1)
        }
    }

    impl Code for Number {
        const UNKNOWN: Self = Self(999);
        const FORKED: Self = Self(3);

        fn parse(text: &str) -> Option<Self> {
            text.parse().ok().map(Self)
        }

        fn describe(outcome: Result<(), Self>) -> String {
            format!("{outcome:?}")
        }
    }

    #[test]
    fn sizes_are_read() {
        let read = ["64", "2K", "3m", "16G", "", "x", "9999999999999G"].map(size);
        assert_eq!(read, [Some(64), Some(2048), Some(3 << 20), Some(16 << 30), None, None, None]);
    }

    #[test]
    fn planned_failures_are_read() {
        let mut faults = Faults::<Number>::default();
        let planned = failures("cuEventRecord@2=700, cuMemAlloc_v2@*=2,");
        planned.into_iter().flatten().for_each(|planned| faults.plan(planned));
        let calls = ["cuEventRecord", "cuMemAlloc_v2", "cuEventRecord", "cuEventRecord", "cuMemAlloc_v2"];
        let failed = calls.map(|name| faults.count(name).err().map(|code| code.0));
        assert_eq!(failed, [None, Some(2), Some(700), None, Some(2)]);
    }

    #[test]
    fn a_failure_at_any_call_is_read() {
        let mut faults = Faults::<Number>::default();
        failure_at("3=700").into_iter().for_each(|planned| faults.plan(planned));
        let failed = ["a", "b", "a", "b"].map(|name| faults.count(name).err().map(|code| code.0));
        assert_eq!(failed, [None, None, Some(700), None]);
        assert_eq!(failure_at("7").map(|planned| (planned.nth, planned.code)), Some((7, Number::UNKNOWN)));
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in ["cuEventRecord", "cuEventRecord@0=1", "cuEventRecord@1", "a@1=b", "a@2=1,b"] {
            assert!(failures::<Number>(wrong).is_none(), "{wrong}");
        }
        for wrong in ["0", "", "x", "1=x"] {
            assert!(failure_at::<Number>(wrong).is_none(), "{wrong}");
        }
    }
}
