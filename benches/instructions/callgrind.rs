//! Counts the instructions of operations with callgrind.

use std::env;
use std::process::{Command, Output};

use super::{Result, operations};

/// The functions whose instructions are counted: one of `accel bench`, and one for the calls of the facade.
const COUNTED: [&str; 2] = ["*bench::counted*", "*facade::counted*"];

/// Returns why instructions cannot be counted here, or `None` if they can.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the counts are for Linux on x86-64".to_owned());
    }
    if cfg!(debug_assertions) {
        return Some("the counts are for a build by `cargo bench`".to_owned());
    }
    let started = Command::new("valgrind").arg("--version").output();
    started.err().map(|error| format!("valgrind does not start: {error}; on Debian: apt-get install valgrind"))
}

/// Returns the number of instructions of an operation.
pub(crate) fn count(operation: &str) -> Result<f64> {
    let times = operations::times(operation);
    let Output { status, stderr, .. } = callgrind()?.args(["-c", operation, &times.to_string()]).output()?;
    let said = String::from_utf8_lossy(&stderr);
    match collected(&said) {
        Some(instructions) if status.success() && instructions > 0 => Ok(instructions as f64 / times as f64),
        _ => Err(format!("callgrind on {operation}: {status}, no instructions counted in {COUNTED:?}:\n{said}").into()),
    }
}

/// Returns a command that runs this program under callgrind, with an environment that contains no settings of either.
fn callgrind() -> Result<Command> {
    let mut command = Command::new("valgrind");
    command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(COUNTED.map(|function| format!("--toggle-collect={function}")));
    command.arg(env::current_exe()?);
    Ok(command)
}

/// Parses the count from a line such as `==123== Collected : 12390445`.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}
