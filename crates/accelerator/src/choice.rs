//! Which backend is the current accelerator. One for the whole process.

use std::sync::atomic::{AtomicUsize, Ordering};

use accelerator_core::{DeviceKind, Error, Result, Unavailable};

use crate::backends::BuiltIn;

const VARIABLE: &str = "ACCELERATOR_BACKEND";

/// The place of the chosen backend; beyond the last: none is chosen yet.
static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The kind of the current accelerator, or `None` where this build has no backend. PyTorch:
/// `torch.accelerator.current_accelerator`.
///
/// It is what [`set_accelerator`] said; else what the environment variable `ACCELERATOR_BACKEND` names; else the first
/// of `cuda`, `xpu`, `opencl`, `host` that this build has and that finds a device; else the first that this build has.
/// Once found it stays. With `check_available` it is `None` also where the accelerator has no device, as
/// [`is_available`] says. `None` too where `ACCELERATOR_BACKEND` names no backend of this build; functions that can
/// fail then fail with [`Error::UnknownBackend`].
pub fn current_accelerator(check_available: bool) -> Option<DeviceKind> {
    let current = current().ok()?;
    (!check_available || current.count() > 0).then(|| current.kind())
}

/// Whether the current accelerator has a device. Opens none. PyTorch: `torch.accelerator.is_available`.
pub fn is_available() -> bool {
    device_count() > 0
}

/// How many devices the current accelerator has; 0 where there is none. Opens none. PyTorch:
/// `torch.accelerator.device_count`.
pub fn device_count() -> u32 {
    current().map_or(0, BuiltIn::count)
}

/// Makes the backend with this name the current accelerator of the process, whatever the environment says. What was
/// made on another backend stays usable. PyTorch has no counterpart: a build of it has one accelerator.
///
/// # Errors
/// [`Error::UnknownBackend`] for a name that no backend of this build has, [`Error::NoAccelerator`] for one without a
/// device. The accelerator stays as it was then.
pub fn set_accelerator(name: &str) -> Result<()> {
    let backend = named(name, "set_accelerator")?;
    backend.probe().map_err(|why| Error::no_accelerator(backend.kind(), &why))?;
    CHOSEN.store(backend.place(), Ordering::Release);
    Ok(())
}

/// A backend of this build, and how many devices it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its kind.
    pub kind: DeviceKind,
    /// How many devices there are, or why there is none.
    pub devices: Result<u32, Unavailable>,
}

/// All backends of this build, the most preferred first. PyTorch: `torch.<backend>.is_available` of each.
pub fn backends() -> Vec<BackendStatus> {
    BuiltIn::all().map(|backend| BackendStatus { kind: backend.kind(), devices: backend.probe() }).collect()
}

/// The current accelerator.
pub(crate) fn current() -> Result<BuiltIn> {
    match BuiltIn::at(CHOSEN.load(Ordering::Acquire)) {
        Some(chosen) => Ok(chosen),
        None => choose(),
    }
}

/// How many devices the current accelerator has.
///
/// # Errors
/// [`Error::NoAccelerator`] where it has none: why, and if nobody has chosen it, why the others have none.
pub(crate) fn count(current: BuiltIn) -> Result<u32> {
    current.probe().map_err(|why| {
        let chosen = CHOSEN.load(Ordering::Acquire) == current.place();
        let others = BuiltIn::all().filter(|other| !chosen && *other != current);
        let others = others.filter_map(|other| Some((other, other.probe().err()?)));
        let reasons = std::iter::once((current, why)).chain(others);
        let reasons = reasons.map(|(backend, why)| format!("{}: {why}", backend.kind()));
        Error::NoAccelerator { reasons: reasons.collect::<Vec<_>>().join("; ") }
    })
}

#[cold]
fn choose() -> Result<BuiltIn> {
    let first = BuiltIn::all().next().ok_or_else(|| Error::NoAccelerator {
        reasons: "this build has no backend: enable a feature such as `host`".to_owned(),
    })?;
    let chosen = match std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        Some(name) => named(&name.to_string_lossy(), VARIABLE)?,
        None => match BuiltIn::all().find(|backend| backend.count() > 0) {
            Some(available) => available,
            None => return Ok(first), // not for good: a device may turn up
        },
    };
    // Unless another thread chose in the meantime.
    let chosen = chosen.place();
    let result = CHOSEN.compare_exchange(usize::MAX, chosen, Ordering::AcqRel, Ordering::Acquire);
    Ok(BuiltIn::at(result.err().unwrap_or(chosen)).unwrap_or(first))
}

fn named(name: &str, given_by: &'static str) -> Result<BuiltIn> {
    BuiltIn::named(name).ok_or_else(|| {
        let known: Vec<_> = BuiltIn::all().map(|backend| backend.kind().name()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::UnknownBackend { name: name.to_owned(), given_by, known }
    })
}
