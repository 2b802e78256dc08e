//! How many instructions operations take, by callgrind.

use std::env;
use std::process::{Command, Output};

use super::{Result, operations};

/// The functions in which instructions count: of `accel bench`, and of the calls of the facade.
const COUNTED: [&str; 2] = ["*bench::counted*", "*facade::counted*"];

/// Why nothing can be counted here; `None`: it can.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the counts are those of Linux on x86-64".to_owned());
    }
    if cfg!(debug_assertions) {
        return Some("the counts are those of a build by `cargo bench`".to_owned());
    }
    let started = Command::new("valgrind").arg("--version").output();
    started.err().map(|error| format!("valgrind does not start: {error}; on Debian: apt-get install valgrind"))
}

/// Instructions of an operation.
pub(crate) fn count(operation: &str) -> Result<f64> {
    let times = operations::times(operation);
    let Output { status, stderr, .. } = callgrind()?.args(["-c", operation, &times.to_string()]).output()?;
    let said = String::from_utf8_lossy(&stderr);
    match collected(&said) {
        Some(instructions) if status.success() && instructions > 0 => Ok(instructions as f64 / times as f64),
        _ => Err(format!("callgrind on {operation}: {status}, and no instructions of {COUNTED:?}:\n{said}").into()),
    }
}

/// Callgrind on this program, with nothing in the environment that could be a setting of either.
fn callgrind() -> Result<Command> {
    let mut command = Command::new("valgrind");
    command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(COUNTED.map(|function| format!("--toggle-collect={function}")));
    command.arg(env::current_exe()?);
    Ok(command)
}

/// Of a line as `==123== Collected : 12390445`.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}
