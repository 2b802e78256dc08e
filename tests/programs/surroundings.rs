//! What a process of a trial does not share with its parent, and the libraries that it may load.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Prefixes of environment variables that concern the drivers or this project. None of these reach a trial.
const SURROUNDINGS: [&str; 9] =
    ["CUDA_", "ZE_", "ZES_", "ZEL_", "NEO", "ONEAPI_", "ACCELERATOR_BACKEND", "ACCELERATOR_ALLOC", "PYTORCH_"];

/// Removes this process's settings of drivers from another process.
pub(crate) fn separate(command: &mut Command) {
    for (variable, _) in env::vars_os() {
        if SURROUNDINGS.iter().any(|beginning| variable.to_string_lossy().starts_with(beginning)) {
            command.env_remove(variable);
        }
    }
    // Intel's driver writes a file into the current folder.
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
}

/// Returns the path of a workspace library, which is built next to the test programs.
pub(crate) fn beside(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.with_file_name(format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}
