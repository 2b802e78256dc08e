//! Shared by the trials: processes in which the loader finds exactly one driver.

use std::env;
use std::fs::{self, File};
use std::path::Path;

use accelerator_conformance::unavailable;
use accelerator_core::Accelerator;
use accelerator_xpu::Xpu;
use accelerator_xpu::sys::LevelZero;
use libtest_mimic::{Completion, Failed, Trial};

use crate::control;
pub(crate) use crate::programs::process::Outcome;
use crate::programs::process::{self, VIOLATES, Variables, beside};
use crate::programs::simulated;
pub(crate) use crate::programs::simulated::check_all_gone;

pub(crate) type Device = &'static Accelerator<Xpu>;

/// The driver that the loader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// No driver, because there is no loader to find one.
    NoLoader,
    /// No driver, because the loader is so old that it lacks every function that is called.
    OldLoader,
    /// None.
    None,
    /// Intel's own driver, for a product that is absent. It accepts commands but executes nothing.
    WithoutHardware {
        /// The product, by Intel's name.
        product: &'static str,
    },
    /// The simulated driver.
    Simulated {
        /// Whether the loader's own checks are on for each call.
        checked: bool,
    },
}

impl Driver {
    fn variables(self) -> Result<Vec<(&'static str, String)>, Failed> {
        let text = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
        };
        Ok(match self {
            Self::NoLoader => vec![("LD_LIBRARY_PATH", folder_with_loader(None)?)],
            // A library with functions, but none of a loader's.
            Self::OldLoader => vec![("LD_LIBRARY_PATH", folder_with_loader(Some(&beside("ze_sim")))?)],
            // The loader then searches for no other driver.
            Self::None => text(&[("ZE_ENABLE_ALT_DRIVERS", "/no/such/driver.so")]),
            Self::WithoutHardware { product } => text(&[
                ("NEOReadDebugKeys", "1"),
                ("SetCommandStreamReceiver", "1"),
                ("ProductFamilyOverride", product),
                ("AUBDumpSubCaptureMode", "1"),
            ]),
            Self::Simulated { checked } => {
                let layer = if checked { "1" } else { "0" };
                let mut variables = text(&CHECKS.map(|check| (check, layer)));
                variables.push(("ZE_ENABLE_ALT_DRIVERS", beside("ze_sim").to_string_lossy().into_owned()));
                variables
            }
        })
    }

    /// Returns why trials with it cannot run here.
    fn missing(self) -> Option<String> {
        if matches!(self, Self::NoLoader | Self::OldLoader) {
            return None; // trials bring their own
        }
        if let Err(error) = LevelZero::load() {
            return Some(error.to_string());
        }
        match self {
            Self::WithoutHardware { .. } if !is_installed("libze_intel_gpu.so.1") => {
                Some("Intel's driver is not installed".to_owned())
            }
            _ => None,
        }
    }
}

/// Variables that turn on the loader's checks, except those of handles: loaders 1.20 and 1.32 refuse valid ones.
pub(crate) const CHECKS: [&str; 2] = ["ZE_ENABLE_VALIDATION_LAYER", "ZE_ENABLE_PARAMETER_VALIDATION"];

/// Returns a folder with the loader's file names, where the system looks first and then stops: copies of a library, or
/// files that are not libraries.
fn folder_with_loader(library: Option<&Path>) -> Result<String, Failed> {
    let name = if library.is_some() { "old-level-zero-loader" } else { "no-level-zero-loader" };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder)?;
    for name in ["libze_loader.so.1", "libze_loader.so"] {
        let path = folder.join(name);
        match library {
            Some(library) => fs::copy(library, path).map(drop)?,
            None => File::create(path).map(drop)?,
        }
    }
    Ok(folder.to_string_lossy().into_owned())
}

/// Whether the system finds this library.
fn is_installed(name: &str) -> bool {
    // Not checked by loading it: that would execute its code, and this process must not contain it.
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib"];
    folders.iter().any(|folder| Path::new(folder).join(name).exists())
}

/// Creates a trial in its own process, with this driver and these variables.
pub(crate) fn trial(
    name: impl Into<String>,
    driver: Driver,
    variables: Variables,
    run: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || {
        if process::is_of(&name) {
            return run();
        }
        if let Some(why) = driver.missing() {
            return Ok(Completion::ignored_with(unavailable("xpu", &why)?));
        }
        let mut command = process::child(&name)?;
        command.envs(driver.variables()?).envs(variables.iter().copied());
        process::completed(&mut command)
    })
}

/// Creates a trial on the simulated driver, under the loader's checks. It fails if that driver recorded violations.
pub(crate) fn simulated(name: impl Into<String>, variables: Variables, run: fn() -> Outcome) -> Trial {
    on_simulated(name, true, variables, run)
}

/// Like [`simulated`], without the loader's checks, for calls that old loaders' checks wrongly refuse.
pub(crate) fn unchecked(name: impl Into<String>, variables: Variables, run: fn() -> Outcome) -> Trial {
    on_simulated(name, false, variables, run)
}

fn on_simulated(name: impl Into<String>, checked: bool, variables: Variables, run: fn() -> Outcome) -> Trial {
    trial(format!("simulated::{}", name.into()), Driver::Simulated { checked }, variables, move || {
        run()?;
        let violations = control::violation_text();
        match violations.is_empty() || env::var_os(VIOLATES).is_some() {
            true => Ok(Completion::Completed),
            false => Err(format!("the simulated driver recorded violations:\n{violations}").into()),
        }
    })
}

/// Opens the first device again.
pub(crate) fn device() -> Result<Device, Failed> {
    simulated::device()
}

pub(crate) fn device_numbered(ordinal: u32) -> Result<Device, Failed> {
    simulated::device_numbered(ordinal)
}
