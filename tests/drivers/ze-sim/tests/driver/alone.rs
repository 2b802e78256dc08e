//! Trials that each run in their own process, because the loader and the driver read the environment once.

use std::process::Command;

use level_zero_sys::LevelZero;
use libtest_mimic::{Completion, Failed, Trial};

/// Set to the trial's name in the trial's process.
const CHILD: &str = "ZE_SIM_TEST";

/// Whether the validation layer is between the program and the driver. The layer itself refuses calls that it considers
/// wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Validation,
    None,
}

/// A trial: its name, the driver's environment variables, and its body.
pub(crate) struct Alone {
    pub(crate) name: &'static str,
    pub(crate) layer: Layer,
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) run: fn(),
    /// Whether the trial expects its process to abort.
    pub(crate) aborts: bool,
}

/// Creates a trial that runs under the validation layer.
pub(crate) fn valid(name: &'static str, settings: &'static [(&str, &str)], run: fn()) -> Alone {
    Alone { name, layer: Layer::Validation, settings, run, aborts: false }
}

/// Creates a trial for calls that the validation layer would refuse or does not support.
pub(crate) fn bare(name: &'static str, settings: &'static [(&str, &str)], run: fn()) -> Alone {
    Alone { layer: Layer::None, ..valid(name, settings, run) }
}

/// Returns the trial that this process is to run.
pub(crate) fn child() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Returns the path of the library, which cargo builds next to the tests.
pub(crate) fn library() -> std::path::PathBuf {
    std::env::current_exe().unwrap().with_file_name("libze_sim.so")
}

impl Alone {
    pub(crate) fn into_trial(self) -> Trial {
        Trial::ignorable_test(self.name, move || self.start())
    }

    fn start(self) -> Result<Completion, Failed> {
        if let Err(error) = LevelZero::load() {
            return match std::env::var("ACCELERATOR_REQUIRE").is_ok_and(|names| names.contains("xpu")) {
                true => Err(error.into()),
                false => Ok(Completion::ignored_with("no Level Zero loader is installed")),
            };
        }
        let mut command = Command::new(std::env::current_exe()?);
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("ZE")) {
            command.env_remove(name);
        }
        command.env(CHILD, self.name).env("ZE_ENABLE_ALT_DRIVERS", library()).envs(self.settings.iter().copied());
        if self.layer == Layer::Validation {
            command.env("ZE_ENABLE_VALIDATION_LAYER", "1").env("ZE_ENABLE_PARAMETER_VALIDATION", "1");
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        // Without an exit code, the process was terminated by a signal.
        let as_expected = if self.aborts { output.status.code().is_none() } else { output.status.success() };
        if as_expected { Ok(Completion::Completed) } else { Err(format!("{}\n{text}", output.status).into()) }
    }
}
