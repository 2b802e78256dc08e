//! Tests that each run in a process of their own.

#![allow(clippy::panic, clippy::unwrap_used, reason = "only tests call it")]

use std::env;
use std::process::Command;

use accelerator::{Device, DeviceKind, Result};

/// Set to the test's name in the process of a test.
const CHILD: &str = "ACCELERATOR_FACADE_TEST";

/// Ours. Nothing of the surroundings reaches a test.
const VARIABLES: [&str; 4] =
    ["ACCELERATOR_BACKEND", "ACCELERATOR_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "ACCELERATOR_HOST_CAPACITY"];

/// Makes each body a test that runs with three host devices, and with the variables that it names.
macro_rules! processes {
    ($( fn $name:ident($($variable:ident = $value:literal),*) $body:block )*) => {$(
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            $crate::process::run(path, &[$((stringify!($variable), $value)),*], || {
                $body
                Ok(())
            });
        }
    )*};
}

pub(crate) use processes;

/// Runs the body of the test with this path in a process of its own.
pub(crate) fn run(path: &str, variables: &[(&str, &str)], body: fn() -> Result<()>) {
    let (_crate, name) = path.split_once("::").unwrap();
    if env::var_os(CHILD).is_some_and(|running| running == name) {
        return body().unwrap_or_else(|error| panic!("{error}"));
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, name);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.env("ACCELERATOR_HOST_DEVICES", "3").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // That one passed shows that the name is right.
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

pub(crate) const HOST: DeviceKind = DeviceKind::new("host");

pub(crate) fn host(index: u32) -> Device {
    Device { kind: HOST, index }
}
