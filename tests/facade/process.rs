//! Tests that each run in a process of their own.

#![allow(clippy::panic, clippy::unwrap_used, reason = "only tests call it")]

use std::env;
use std::fs;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

use accelerator::{Device, DeviceKind, Result};

/// Set to the test's name in the process of a test.
const CHILD: &str = "ACCELERATOR_FACADE_TEST";

/// Ours. Nothing of the surroundings reaches a test, except which OpenCL devices a test on them is to use.
const VARIABLES: [&str; 5] = [
    "ACCELERATOR_BACKEND",
    "ACCELERATOR_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "ACCELERATOR_HOST_CAPACITY",
    "ACCELERATOR_OPENCL_CAPACITY",
];

/// Makes each body a test that runs `on_host` or `on_opencl`, and with the variables that it names.
macro_rules! processes {
    ($place:ident: $( fn $name:ident($($variable:ident = $value:literal),*) $body:block )*) => {$(
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            $crate::process::$place(path, &[$((stringify!($variable), $value)),*], || {
                $body
                Ok(())
            });
        }
    )*};
}

pub(crate) use processes;

/// Runs the body of the test with this path in a process of its own, in which the host has three devices and no OpenCL
/// driver is found, whatever the machine has.
pub(crate) fn on_host(path: &str, variables: &[(&str, &str)], body: fn() -> Result<()>) {
    run(path, body, |command| {
        // Where OpenCL loaders look for drivers: that is faster than to load drivers and leave their devices out.
        let nothing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-opencl-drivers");
        fs::create_dir_all(&nothing).unwrap();
        command.env("OCL_ICD_VENDORS", nothing).env_remove("OCL_ICD_FILENAMES");
        // For loaders that do not ask for it.
        command.env("ACCELERATOR_OPENCL_DEVICES", ",").env("ACCELERATOR_HOST_DEVICES", "3");
        command.envs(variables.iter().copied());
        true
    });
}

/// Runs the body of the test with this path in a process of its own, which finds the machine's OpenCL devices and a host
/// device. Without an OpenCL device it is skipped, which is a failure where `ACCELERATOR_REQUIRE` lists `opencl`.
pub(crate) fn on_opencl(path: &str, variables: &[(&str, &str)], body: fn() -> Result<()>) {
    run(path, body, |command| {
        let backends = accelerator::backends();
        let opencl = backends.into_iter().find(|backend| backend.kind == OPENCL).unwrap();
        if let Err(unavailable) = opencl.devices {
            let required = env::var("ACCELERATOR_REQUIRE").unwrap_or_default();
            let required = required.split(',').any(|name| name.trim() == OPENCL.name());
            assert!(
                !required,
                "ACCELERATOR_REQUIRE asks for `opencl`, which is not available: {unavailable}"
            );
            // Written past the harness, which would keep it to itself.
            stderr().write_all(format!("skipped {path}: {unavailable}\n").as_bytes()).unwrap();
            return false;
        }
        command.env("ACCELERATOR_HOST_DEVICES", "1").envs(variables.iter().copied());
        true
    });
}

/// Runs the body here if this is the process of the test, or else in such a process, if `prepare` says so.
fn run(path: &str, body: fn() -> Result<()>, prepare: impl FnOnce(&mut Command) -> bool) {
    let (_crate, name) = path.split_once("::").unwrap();
    if env::var_os(CHILD).is_some_and(|running| running == name) {
        return body().unwrap_or_else(|error| panic!("{error}"));
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, name);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    if !prepare(&mut command) {
        return;
    }
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // That one passed shows that the name is right.
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

pub(crate) const HOST: DeviceKind = DeviceKind::new("host");
pub(crate) const OPENCL: DeviceKind = DeviceKind::new("opencl");

pub(crate) fn host(index: u32) -> Device {
    Device { kind: HOST, index }
}
