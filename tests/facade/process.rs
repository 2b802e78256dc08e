//! Trials that each run in a process of their own.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use accelerator::opencl::OpenCl;
use accelerator::{Backend, Device, DeviceKind, Result};
use accelerator_conformance::unavailable;
use libtest_mimic::{Completion, Failed, Trial};

/// Set to the test's name in the process of a test.
const CHILD: &str = "ACCELERATOR_FACADE_TEST";

/// Ours. Nothing of the surroundings reaches a test, except which OpenCL devices a test on them is to use.
const VARIABLES: [&str; 7] = [
    "ACCELERATOR_BACKEND",
    "ACCELERATOR_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "ACCELERATOR_HOST_CAPACITY",
    "ACCELERATOR_OPENCL_CAPACITY",
];

/// Makes each body a trial that runs `on_host` or `on_opencl`, and with the variables that it names.
macro_rules! processes {
    ($place:ident: $( fn $name:ident($($variable:ident = $value:literal),*) $body:block )*) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$({
                fn body() -> accelerator::Result<()> {
                    $body
                    Ok(())
                }
                let path = concat!(module_path!(), "::", stringify!($name));
                $crate::process::$place(path, &[$((stringify!($variable), $value)),*], body)
            }),*]
        }
    };
}

pub(crate) use processes;

/// A trial with this path that runs the body in a process of its own, in which the host has three devices and no driver
/// is found, whatever the machine has.
pub(crate) fn on_host(
    path: &'static str,
    variables: &'static [(&str, &str)],
    body: fn() -> Result<()>,
) -> Trial {
    trial(path, body, |command| {
        // Where OpenCL loaders look for drivers: that is faster than to load drivers and leave their devices out.
        let nothing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-opencl-drivers");
        fs::create_dir_all(&nothing)?;
        command.env("OCL_ICD_VENDORS", nothing).env_remove("OCL_ICD_FILENAMES");
        // For loaders that do not ask for it.
        command.env("ACCELERATOR_OPENCL_DEVICES", ",").env("ACCELERATOR_HOST_DEVICES", "3");
        command.envs(variables.iter().copied());
        Ok(Completion::Completed)
    })
}

/// A trial with this path that runs the body in a process of its own, which finds the machine's OpenCL devices and a host
/// device. Ignored without an OpenCL device, which is a failure where `ACCELERATOR_REQUIRE` lists `opencl`.
pub(crate) fn on_opencl(
    path: &'static str,
    variables: &'static [(&str, &str)],
    body: fn() -> Result<()>,
) -> Trial {
    trial(path, body, |command| {
        command.env("ACCELERATOR_HOST_DEVICES", "1").envs(variables.iter().copied());
        match OpenCl::probe() {
            Ok(_) => Ok(Completion::Completed),
            Err(why) => unavailable(OPENCL.name(), &why.reason),
        }
    })
}

/// Runs the body if this is the process of the trial, or else starts such a process, unless `prepare` ignores it.
fn trial(
    path: &'static str,
    body: fn() -> Result<()>,
    prepare: impl FnOnce(&mut Command) -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let name = path.split_once("::").map_or(path, |(_crate, name)| name);
    Trial::ignorable_test(name, move || {
        if env::var_os(CHILD).is_some_and(|running| running == name) {
            return Ok(body().map(|()| Completion::Completed)?);
        }
        let mut command = Command::new(env::current_exe()?);
        command.args(["--exact", name, "--nocapture"]).env(CHILD, name).env("CUDA_VISIBLE_DEVICES", "");
        // The only driver that Level Zero's loader is to open. An empty name crashes old loaders.
        command.env("ZE_ENABLE_ALT_DRIVERS", "/no/such/driver");
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let completion = prepare(&mut command)?;
        if matches!(completion, Completion::Ignored { .. }) {
            return Ok(completion);
        }
        let output = command.output()?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // That one passed shows that the name is right.
        match output.status.success() && stdout.contains("1 passed") {
            true => Ok(Completion::Completed),
            false => Err(format!("{stdout}{stderr}").into()),
        }
    })
}

pub(crate) const HOST: DeviceKind = DeviceKind::new("host");
pub(crate) const OPENCL: DeviceKind = DeviceKind::new("opencl");
pub(crate) const XPU: DeviceKind = DeviceKind::new("xpu");

pub(crate) fn host(index: u32) -> Device {
    Device { kind: HOST, index }
}
