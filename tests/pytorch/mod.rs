//! PyTorch's sources, and Python to run them.

mod expected;
mod made;
mod recorded;
pub(crate) mod tracker;
pub(crate) mod viz;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use accelerator_conformance::unavailable;
use libtest_mimic::{Completion, Failed};

const SOURCES: &str = "ACCELERATOR_PYTORCH_SOURCES";

/// The trial on the folder with PyTorch's sources, or an excuse where there is none.
pub(crate) fn with_pytorch(trial: impl FnOnce(&Path) -> Result<(), Failed>) -> Result<Completion, Failed> {
    let Some(sources) = std::env::var_os(SOURCES).map(PathBuf::from) else {
        return unavailable("pytorch", &format!("{SOURCES} is not set"));
    };
    if !sources.join("torch/cuda/_memory_viz.py").is_file() {
        let what = format!("{SOURCES}: no torch/cuda/_memory_viz.py in {}", sources.display());
        return unavailable("pytorch", &what);
    }
    match Command::new("python3").arg("--version").output() {
        Ok(_) => trial(&sources).map(|()| Completion::Completed),
        Err(error) => unavailable("pytorch", &format!("python3: {error}")),
    }
}

/// Runs a program of ours with these arguments: what it printed.
pub(crate) fn python(program: &str, arguments: &[&OsStr]) -> Result<String, Failed> {
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
