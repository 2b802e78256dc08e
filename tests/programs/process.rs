//! Trials in processes of their own: which drivers there are, and what they do, is settled when a process begins.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Completion, Failed};

pub(crate) type Outcome = Result<(), Failed>;

pub(crate) type Variables = &'static [(&'static str, &'static str)];

/// Set for trials that do on purpose what no correct program does.
pub(crate) const VIOLATES: &str = "ACCELERATOR_VIOLATES";

/// Set to the trial's name in the process of a trial.
pub(crate) const CHILD: &str = "ACCELERATOR_TRIAL";

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

/// Whether this process is that of the trial with this name. It then ends after ten minutes, which is more than any trial
/// takes: what waits in vain is a failure.
#[allow(unsafe_code)]
pub(crate) fn is_of(trial: &str) -> bool {
    let is_of = env::var_os(CHILD).is_some_and(|running| running == *trial);
    if is_of {
        // SAFETY: Without a handler the signal ends the process.
        unsafe { libc::alarm(600) };
    }
    is_of
}

/// The process of a trial, to be run by [`completed`].
pub(crate) fn child(trial: &str) -> Result<Command, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", trial, "--include-ignored", "--nocapture"]);
    for (variable, _) in env::vars_os() {
        if SURROUNDINGS.iter().any(|beginning| variable.to_string_lossy().starts_with(beginning)) {
            command.env_remove(variable);
        }
    }
    // Intel's driver writes a file beside it.
    command.env(CHILD, trial).current_dir(env!("CARGO_TARGET_TMPDIR"));
    Ok(command)
}

/// Runs the trial of this process in another one, with these variables.
pub(crate) fn again(variables: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", &env::var(CHILD)?, "--include-ignored", "--nocapture"]);
    completed(command.envs(variables.iter().copied())).map(drop)
}

/// What the trial in the process came to.
pub(crate) fn completed(command: &mut Command) -> Result<Completion, Failed> {
    let output = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let ignored =
        stdout.lines().find_map(|line| Some(line.split_once(" ... ignored (")?.1.trim_end_matches(')')));
    // That one was run shows that the name is right. The checks of leaks that Level Zero's loader has only print.
    match output.status.success() && !stderr.contains("LEAK") {
        true if stdout.contains("1 passed") => Ok(Completion::Completed),
        true if stdout.contains("1 ignored") => Ok(Completion::ignored_with(ignored.unwrap_or_default())),
        _ => Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status).into()),
    }
}

/// A library of the workspace, which lies beside the programs of the tests.
pub(crate) fn beside(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.with_file_name(format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}
