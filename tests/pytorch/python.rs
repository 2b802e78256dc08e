//! Python, if the machine has it.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use accelerator_conformance::unavailable;
use libtest_mimic::{Completion, Failed};

/// Runs a program with these arguments and returns its output.
pub(crate) fn run(program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<String, Failed> {
    let mut python = Command::new("python3");
    python.arg("-").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn()?;
    child.stdin.take().unwrap().write_all(program.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a trial with Python. Without Python the trial is skipped, or fails if this requirement is listed.
pub(crate) fn with_python(requirement: &str, trial: impl FnOnce() -> Result<(), Failed>) -> Result<Completion, Failed> {
    match Command::new("python3").arg("--version").output() {
        Ok(output) if output.status.success() => trial().map(|()| Completion::Completed),
        Ok(output) => Ok(Completion::ignored_with(unavailable(requirement, &String::from_utf8_lossy(&output.stderr))?)),
        Err(error) => Ok(Completion::ignored_with(unavailable(requirement, &format!("python3: {error}"))?)),
    }
}
