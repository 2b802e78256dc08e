//! Settings from the environment, read at the first call of the process.

use std::collections::BTreeSet;
use std::time::Duration;

use sim_engine::Environment;

use crate::result::Refusal;
use crate::state::Driver;
use crate::tables::Version;

/// The newest API version for which this driver has everything that programs need.
const NEWEST: Version = (1, 15);
const OLDEST: Version = (1, 0);

/// Behaviour observed in a real driver that contradicts the specification or expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quirk {
    IgnoreAlignment,
    NullSuccess,
    SizeZeroAborts,
    CrashAfterFailedInit,
    NoHandlesWithoutCount,
    NoSysman,
    NoRelaxedLimits,
    NoPci,
    Integrated,
    UsableMemory,
    OneMapping,
    MovingMapping,
    NoFiles,
}

impl Quirk {
    const ALL: [(&'static str, Self); 13] = [
        ("ignore-alignment", Self::IgnoreAlignment),
        ("null-success", Self::NullSuccess),
        ("size-zero-aborts", Self::SizeZeroAborts),
        ("crash-after-failed-init", Self::CrashAfterFailedInit),
        ("no-handles-without-count", Self::NoHandlesWithoutCount),
        ("no-sysman", Self::NoSysman),
        ("no-relaxed-limits", Self::NoRelaxedLimits),
        ("no-pci", Self::NoPci),
        ("integrated", Self::Integrated),
        ("usable-memory", Self::UsableMemory),
        ("one-mapping", Self::OneMapping),
        ("moving-mapping", Self::MovingMapping),
        ("no-files", Self::NoFiles),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, quirk)| *quirk)
    }
}

pub(crate) struct Settings {
    /// The driver's API version.
    pub(crate) version: Version,
    /// The largest allocation without a descriptor that lifts the limit.
    pub(crate) max_allocation: u64,
    /// Whether devices reach each other's memory.
    pub(crate) peers: bool,
    /// How long a thread that waits for unsubmitted work trusts other threads to submit it.
    pub(crate) patience: Duration,
    /// The device numbers in `ZE_AFFINITY_MASK`, or `None` for all devices.
    pub(crate) affinity: Option<Vec<usize>>,
    quirks: BTreeSet<Quirk>,
    /// Whether a variable was invalid. `zeInit` then fails, so that no test runs with less than it requested.
    pub(crate) mistake: bool,
}

impl Settings {
    /// Reads the engine's settings and this driver's.
    pub(crate) fn read() -> (sim_engine::Settings<Refusal>, Self) {
        let mut environment = Environment::of::<Driver>("Level Zero", "zeInit");
        let engine = sim_engine::Settings::read(&mut environment);
        let patience = environment.read("PATIENCE", |text| text.parse().ok()).unwrap_or(5_000);
        let own = Self {
            version: environment.read("API_VERSION", version).unwrap_or(NEWEST),
            max_allocation: environment.read("MAX_ALLOCATION", sim_engine::size).unwrap_or(4 << 30),
            peers: environment.read("PEERS", yes_or_no).unwrap_or(true),
            patience: Duration::from_millis(patience),
            affinity: std::env::var("ZE_AFFINITY_MASK").ok().and_then(|mask| affinity(&mask)),
            quirks: environment.read("QUIRKS", quirks).unwrap_or_default(),
            mistake: environment.mistake(),
        };
        (engine, own)
    }

    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }
}

fn version(text: &str) -> Option<Version> {
    let (major, minor) = text.split_once('.')?;
    let version = (major.parse().ok()?, minor.parse().ok()?);
    (OLDEST..=NEWEST).contains(&version).then_some(version)
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn quirks(text: &str) -> Option<BTreeSet<Quirk>> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Quirk::named).collect()
}

/// Parses device numbers, separated by commas. Each may have the suffix of a sub-device, which is ignored because there
/// are none. An empty string means no mask.
fn affinity(mask: &str) -> Option<Vec<usize>> {
    let device = |entry: &str| entry.split('.').next().and_then(|number| number.trim().parse().ok());
    let chosen: Vec<usize> = mask.split(',').filter_map(device).collect();
    (!mask.trim().is_empty()).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let read = ["1.3", "1.15", "1.16", "0.9", "1", "x"].map(version);
        assert_eq!(read, [Some((1, 3)), Some((1, 15)), None, None, None, None]);
    }

    #[test]
    fn quirks_are_read() {
        assert_eq!(quirks("no-pci, integrated,"), Some([Quirk::NoPci, Quirk::Integrated].into()));
        assert_eq!(quirks(""), Some(BTreeSet::new()));
        assert_eq!(quirks("no-such"), None);
    }

    #[test]
    fn masks_are_read() {
        assert_eq!(affinity("1,0.1"), Some(vec![1, 0]));
        assert_eq!([affinity(""), affinity("x")], [None, Some(vec![])]);
    }
}
