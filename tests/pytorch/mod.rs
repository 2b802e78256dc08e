//! PyTorch's sources, and Python to run them.

mod expected;
mod made;
mod python;
mod recorded;
pub(crate) mod tracker;
pub(crate) mod viz;

use std::path::{Path, PathBuf};

use accelerator_conformance::unavailable;
use libtest_mimic::{Completion, Failed};

use self::python::with_python;

const SOURCES: &str = "ACCELERATOR_PYTORCH_SOURCES";

/// Runs the trial on the folder with PyTorch's sources, or returns why it is skipped.
pub(crate) fn with_pytorch(trial: impl FnOnce(&Path) -> Result<(), Failed>) -> Result<Completion, Failed> {
    let Some(sources) = std::env::var_os(SOURCES).map(PathBuf::from) else {
        return Ok(Completion::ignored_with(unavailable("pytorch", &format!("{SOURCES} is not set"))?));
    };
    if !sources.join("torch/cuda/_memory_viz.py").is_file() {
        let what = format!("{SOURCES}: no torch/cuda/_memory_viz.py in {}", sources.display());
        return Ok(Completion::ignored_with(unavailable("pytorch", &what)?));
    }
    with_python("pytorch", || trial(&sources))
}
