//! What the trials share: processes in which the loader finds one driver, and no other.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use accelerator_conformance::unavailable;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Statistics};
use accelerator_xpu::Xpu;
use accelerator_xpu::sys::LevelZero;
use libtest_mimic::{Completion, Failed, Trial};

use crate::control;

pub(crate) type Outcome = Result<(), Failed>;
pub(crate) type Device = &'static Accelerator<Xpu>;

/// Set to the trial's name in the process of a trial.
const CHILD: &str = "ACCELERATOR_XPU_TEST";

/// Set for trials that do on purpose what no correct program does.
pub(crate) const VIOLATES: &str = "ACCELERATOR_XPU_VIOLATES";

/// What the surroundings say to drivers and to us begins with one of these; nothing of it reaches a trial.
const SURROUNDINGS: [&str; 9] = [
    "CUDA_",
    "ZE_",
    "ZES_",
    "ZEL_",
    "NEO",
    "ONEAPI_",
    "ACCELERATOR_BACKEND",
    "ACCELERATOR_ALLOC",
    "PYTORCH_",
];

/// The driver that the loader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// None: there is no loader to find one.
    NoLoader,
    /// None: the loader is so old that it has no function of those that are called.
    OldLoader,
    /// None.
    None,
    /// Intel's own, for a product that is not there: what it is given is accepted, and not done.
    WithoutHardware {
        /// The product, by Intel's name.
        product: &'static str,
    },
    /// The simulated one.
    Simulated {
        /// With the loader's own checks of each call.
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
            // A library that has functions, but no loader's.
            Self::OldLoader => vec![("LD_LIBRARY_PATH", folder_with_loader(Some(&beside("ze_sim")))?)],
            // The loader looks for no other driver then.
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

    /// Why trials with it cannot run here.
    fn missing(self) -> Option<String> {
        if matches!(self, Self::NoLoader | Self::OldLoader) {
            return None; // they bring their own
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

/// What turns the loader's checks on. Not those of handles: loaders 1.20 and 1.32 refuse good ones.
pub(crate) const CHECKS: [&str; 2] = ["ZE_ENABLE_VALIDATION_LAYER", "ZE_ENABLE_PARAMETER_VALIDATION"];

/// A folder with files of the loader's names, which the system finds first, and then looks no further: copies of a library, or
/// nothing that is one.
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
    // Loading it would run it, and it is this process that it must not see.
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib"];
    folders.iter().any(|folder| Path::new(folder).join(name).exists())
}

/// A library of the workspace, which lies beside the programs of the tests.
pub(crate) fn beside(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.with_file_name(format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}

/// A trial that runs in a process of its own, with this driver and these variables.
pub(crate) fn trial(
    name: impl Into<String>,
    driver: Driver,
    variables: &'static [(&str, &str)],
    run: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || {
        if env::var_os(CHILD).is_some_and(|running| running == *name) {
            end_if_it_hangs();
            return run();
        }
        if let Some(why) = driver.missing() {
            return unavailable("xpu", &why);
        }
        let mut command = child(&name)?;
        command.envs(driver.variables()?).envs(variables.iter().copied());
        completed(&mut command)
    })
}

/// Ends the process after ten minutes, which is more than any trial takes: what waits in vain is a failure.
#[allow(unsafe_code)]
fn end_if_it_hangs() {
    // SAFETY: Without a handler the signal ends the process.
    unsafe { libc::alarm(600) };
}

/// A trial on the simulated driver, under the loader's checks. It fails if that driver saw what no correct program does.
pub(crate) fn simulated(
    name: impl Into<String>,
    variables: &'static [(&str, &str)],
    run: fn() -> Outcome,
) -> Trial {
    on_simulated(name, true, variables, run)
}

/// The same without the loader's checks, for calls that those of old loaders refuse by mistake.
pub(crate) fn unchecked(
    name: impl Into<String>,
    variables: &'static [(&str, &str)],
    run: fn() -> Outcome,
) -> Trial {
    on_simulated(name, false, variables, run)
}

fn on_simulated(
    name: impl Into<String>,
    checked: bool,
    variables: &'static [(&str, &str)],
    run: fn() -> Outcome,
) -> Trial {
    trial(format!("simulated::{}", name.into()), Driver::Simulated { checked }, variables, move || {
        run()?;
        let violations = control::violation_text();
        match violations.is_empty() || env::var_os(VIOLATES).is_some() {
            true => Ok(Completion::Completed),
            false => {
                Err(format!("the simulated driver saw what no correct program does:\n{violations}").into())
            }
        }
    })
}

/// Runs the trial of this process in another one, with these variables.
pub(crate) fn again(variables: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", &env::var(CHILD)?, "--include-ignored", "--nocapture"]);
    completed(command.envs(variables.iter().copied())).map(|_| ())
}

fn child(name: &str) -> Result<Command, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", name, "--include-ignored", "--nocapture"]);
    for (variable, _) in env::vars_os() {
        if SURROUNDINGS.iter().any(|beginning| variable.to_string_lossy().starts_with(beginning)) {
            command.env_remove(variable);
        }
    }
    // Intel's driver writes a file beside it.
    command.env(CHILD, name).current_dir(env!("CARGO_TARGET_TMPDIR"));
    Ok(command)
}

/// What the trial in the process came to.
fn completed(command: &mut Command) -> Result<Completion, Failed> {
    let output = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let ignored =
        stdout.lines().find_map(|line| Some(line.split_once(" ... ignored (")?.1.trim_end_matches(')')));
    // That one was run shows that the name is right. The loader's checks of leaks only print.
    match output.status.success() && !stderr.contains("LEAK") {
        true if stdout.contains("1 passed") => Ok(Completion::Completed),
        true if stdout.contains("1 ignored") => Ok(Completion::ignored_with(ignored.unwrap_or_default())),
        _ => Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status).into()),
    }
}

/// The first device, opened anew.
pub(crate) fn device() -> Result<Device, Failed> {
    device_numbered(0)
}

pub(crate) fn device_numbered(ordinal: u32) -> Result<Device, Failed> {
    Xpu::probe()?;
    Ok(Accelerator::new(Xpu::open(ordinal)?, ordinal, AllocatorConfig::default())?)
}

/// Fails unless nothing is left once the caches are given back.
pub(crate) fn check_all_gone(device: Device) -> Outcome {
    give_back(device)?;
    let left = [control::live_allocations(), control::live_host()];
    assert_eq!(left, [0, 0], "the simulated driver's own count");
    Ok(())
}

/// Gives the caches back, after which the device must hold nothing.
pub(crate) fn give_back(device: Device) -> Outcome {
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()?;
    let Statistics { allocation, active, segment, reserved_bytes, num_device_alloc, num_device_free, .. } =
        device.allocator().statistics();
    let left = [allocation, active, segment, reserved_bytes].map(|stat| stat.all.current);
    assert_eq!((left, num_device_alloc - num_device_free), ([0; 4], 0));
    Ok(())
}
