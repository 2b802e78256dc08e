//! Chooses the current accelerator: one backend for the whole process.

use std::sync::atomic::{AtomicUsize, Ordering};

use accelerator_core::{DeviceKind, Error, Result, Unavailable};

use crate::backends::BuiltIn;

const VARIABLE: &str = "ACCELERATOR_BACKEND";

/// The index of the chosen backend, or an invalid index while none is chosen.
static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Returns the kind of the current accelerator, whether or not it has a device. PyTorch:
/// `torch.accelerator.current_accelerator`. Combine it with [`is_available`] for PyTorch's `check_available=True`:
///
/// ```
/// use accelerator::{current_accelerator, is_available};
///
/// let with_a_device = current_accelerator().filter(|_| is_available());
/// # assert!(with_a_device.is_some());
/// ```
///
/// [`set_accelerator`] chooses it. If that was not called, it is the backend that the environment variable
/// `ACCELERATOR_BACKEND` names. Without the variable, it is the first of `cuda`, `xpu`, `opencl`, `vulkan` and `host`
/// that is in this build and finds a device. This choice then lasts for the rest of the process. As long as no backend
/// finds a device, it is the first one in this build.
///
/// Returns `None` if this build has no backend, or if `ACCELERATOR_BACKEND` names one that it does not have. Functions
/// that return a `Result` then fail with [`Error::NoAccelerator`] or [`Error::UnknownBackend`].
pub fn current_accelerator() -> Option<DeviceKind> {
    current().ok().map(BuiltIn::kind)
}

/// Returns whether the current accelerator has a device. Does not open a device. PyTorch:
/// `torch.accelerator.is_available`.
pub fn is_available() -> bool {
    device_count() > 0
}

/// Returns the number of devices of the current accelerator, which may be 0. Does not open a device. PyTorch:
/// `torch.accelerator.device_count`.
pub fn device_count() -> u32 {
    current().map_or(0, BuiltIn::count)
}

/// Makes the backend with this name the current accelerator of the process, regardless of the environment. Buffers,
/// streams and events of another backend stay usable. PyTorch has no counterpart, since each build of it has one
/// accelerator.
///
/// # Errors
/// [`Error::UnknownBackend`] if this build has no backend with this name; [`Error::NoAccelerator`] if the backend has
/// no device. The current accelerator is then unchanged.
pub fn set_accelerator(name: &str) -> Result<()> {
    let backend = named(name, "set_accelerator")?;
    backend.probe().map_err(|why| Error::no_accelerator(backend.kind(), &why))?;
    CHOSEN.store(backend.place(), Ordering::Release);
    Ok(())
}

/// A backend of this build and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its kind.
    pub kind: DeviceKind,
    /// The number of its devices, or the reason why there are none.
    pub devices: Result<u32, Unavailable>,
}

/// Returns all backends of this build in order of preference. PyTorch: `torch.<backend>.is_available()` for each.
pub fn backends() -> Vec<BackendStatus> {
    BuiltIn::all().map(|backend| BackendStatus { kind: backend.kind(), devices: backend.probe() }).collect()
}

/// Returns the current accelerator.
pub(crate) fn current() -> Result<BuiltIn> {
    match BuiltIn::at(CHOSEN.load(Ordering::Acquire)) {
        Some(chosen) => Ok(chosen),
        None => choose(),
    }
}

/// Returns whether this is the current accelerator, and chosen for the rest of the process.
#[inline]
pub(crate) fn is_chosen(backend: BuiltIn) -> bool {
    CHOSEN.load(Ordering::Acquire) == backend.place()
}

/// Returns the number of devices of the current accelerator, which is not 0.
///
/// # Errors
/// [`Error::NoAccelerator`] if it has none, with the reason. If the program or the environment did not choose it, the
/// reasons of the other backends are included.
pub(crate) fn count(current: BuiltIn) -> Result<u32> {
    current.probe().map_err(|why| {
        let others = BuiltIn::all().filter(|other| !is_chosen(current) && *other != current);
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
            None => return Ok(first), // not stored, since a device may appear later
        },
    };
    // Another thread may have chosen in the meantime.
    let chosen = chosen.place();
    let result = CHOSEN.compare_exchange(usize::MAX, chosen, Ordering::AcqRel, Ordering::Acquire);
    Ok(BuiltIn::at(result.err().unwrap_or(chosen)).unwrap_or(first))
}

fn named(name: &str, given_by: &'static str) -> Result<BuiltIn> {
    BuiltIn::named(name).ok_or_else(|| {
        let known: Vec<_> = BuiltIn::all().map(|backend| backend.kind().to_string()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::UnknownBackend { name: name.to_owned(), given_by, known }
    })
}
