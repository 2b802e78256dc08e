//! Trials in their own processes: which drivers exist, and how they behave, is fixed when a process starts.

use std::env;
use std::process::Command;

use libtest_mimic::{Completion, Failed};

pub(crate) use super::surroundings::beside;
use super::surroundings::separate;
use crate::failing::limit_time;

pub(crate) type Outcome = Result<(), Failed>;

pub(crate) type Variables = &'static [(&'static str, &'static str)];

/// Set for trials that deliberately do what no correct program does.
pub(crate) const VIOLATES: &str = "ACCELERATOR_VIOLATES";

/// Set to the trial's name in the trial's process.
pub(crate) const CHILD: &str = "ACCELERATOR_TRIAL";

/// Whether this is the process of the trial with this name. If so, its time is limited.
pub(crate) fn is_of(trial: &str) -> bool {
    let is_of = env::var_os(CHILD).is_some_and(|running| running == *trial);
    if is_of {
        limit_time();
    }
    is_of
}

/// Returns the process of a trial, which [`completed`] runs.
pub(crate) fn child(trial: &str) -> Result<Command, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", trial, "--include-ignored", "--nocapture"]).env(CHILD, trial);
    separate(&mut command);
    Ok(command)
}

/// Runs this process's trial again in another process, with these variables.
pub(crate) fn again(variables: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", &env::var(CHILD)?, "--include-ignored", "--nocapture"]);
    completed(command.envs(variables.iter().copied())).map(drop)
}

/// Returns the outcome of the trial in the process.
pub(crate) fn completed(command: &mut Command) -> Result<Completion, Failed> {
    let output = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Not to the standard output: a trial may run in a process of such a process, which looks for the count there.
    if env::args().any(|argument| argument == "--nocapture") {
        eprint!("{stdout}");
    }
    let ignored = stdout.lines().find_map(|line| Some(line.split_once(" ... ignored (")?.1.trim_end_matches(')')));
    // The count confirms that the name is right. The leak checks of Level Zero's loader only print.
    match output.status.success() && !stderr.contains("LEAK") {
        true if stdout.contains("1 passed") => Ok(Completion::Completed),
        true if stdout.contains("1 ignored") => Ok(Completion::ignored_with(ignored.unwrap_or_default())),
        _ => Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status).into()),
    }
}
