//! Trials that each run in their own process.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use accelerator::core::Accelerator;
use accelerator::host::Host;
use accelerator::opencl::OpenCl;
use accelerator::vulkan::Vulkan;
use accelerator::{AllocatorConfig, Backend, Device, DeviceKind, MIB, Result};
use accelerator_conformance::unavailable;
use libtest_mimic::{Completion, Failed, Trial};

/// Set to the test's name in the test's process.
const CHILD: &str = "ACCELERATOR_FACADE_TEST";

/// Our own variables. Nothing else from the environment reaches a test, except which OpenCL devices to use.
const VARIABLES: [&str; 9] = [
    "ACCELERATOR_BACKEND",
    "ACCELERATOR_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "ACCELERATOR_HOST_CAPACITY",
    "ACCELERATOR_OPENCL_CAPACITY",
    "ACCELERATOR_VULKAN_CAPACITY",
    "ACCELERATOR_VULKAN_QUEUES",
];

/// Turns each body into a trial that runs `on_host`, `on_opencl` or `on_vulkan` with the variables that it names.
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

/// Creates a trial with this path. It runs the body in its own process, in which the host has three devices and no
/// driver is found, whatever the machine has.
pub(crate) fn on_host(path: &'static str, variables: &'static [(&str, &str)], body: fn() -> Result<()>) -> Trial {
    trial(path, body, |command| {
        hide_opencl(command)?;
        hide_vulkan(command);
        command.env("ACCELERATOR_HOST_DEVICES", "3").envs(variables.iter().copied());
        Ok(Completion::Completed)
    })
}

/// Creates a trial with this path. It runs the body in its own process with the machine's OpenCL devices and a host
/// device. The trial is ignored without an OpenCL device, or fails if `ACCELERATOR_REQUIRE` lists `opencl`.
pub(crate) fn on_opencl(path: &'static str, variables: &'static [(&str, &str)], body: fn() -> Result<()>) -> Trial {
    trial(path, body, |command| {
        hide_vulkan(command);
        command.env("ACCELERATOR_HOST_DEVICES", "1").envs(variables.iter().copied());
        match OpenCl::probe() {
            Ok(_) => Ok(Completion::Completed),
            Err(why) => Ok(Completion::ignored_with(unavailable(OPENCL.name(), &why.reason)?)),
        }
    })
}

/// Like [`on_opencl`], with the machine's Vulkan devices.
pub(crate) fn on_vulkan(path: &'static str, variables: &'static [(&str, &str)], body: fn() -> Result<()>) -> Trial {
    trial(path, body, |command| {
        hide_opencl(command)?;
        command.env("ACCELERATOR_HOST_DEVICES", "1").envs(variables.iter().copied());
        match Vulkan::probe() {
            Ok(_) => Ok(Completion::Completed),
            Err(why) => Ok(Completion::ignored_with(unavailable(VULKAN.name(), &why.reason)?)),
        }
    })
}

fn hide_opencl(command: &mut Command) -> Result<(), Failed> {
    // The folder where loaders look for drivers. This is faster than loading drivers and ignoring their devices.
    let nothing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-opencl-drivers");
    fs::create_dir_all(&nothing)?;
    command.env("OCL_ICD_VENDORS", nothing).env_remove("OCL_ICD_FILENAMES");
    // For loaders that ignore that folder.
    command.env("ACCELERATOR_OPENCL_DEVICES", ",");
    Ok(())
}

fn hide_vulkan(command: &mut Command) {
    command.env("VK_DRIVER_FILES", "/no/such/driver").env("VK_ICD_FILENAMES", "/no/such/driver");
}

/// Runs the body if this is the trial's process. Otherwise starts such a process, unless `prepare` ignores the trial.
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
        // The only driver that Level Zero's loader may open. An empty name crashes old loaders.
        command.env("ZE_ENABLE_ALT_DRIVERS", "/no/such/driver");
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let completion = prepare(&mut command)?;
        if matches!(completion, Completion::Ignored { .. }) {
            return Ok(completion);
        }
        let output = command.output()?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // The count confirms that the name is right.
        match output.status.success() && stdout.contains("1 passed") {
            true => Ok(Completion::Completed),
            false => Err(format!("{}\n{stdout}{stderr}", output.status).into()),
        }
    })
}

pub(crate) const HOST: DeviceKind = DeviceKind::new("host");
pub(crate) const OPENCL: DeviceKind = DeviceKind::new("opencl");
pub(crate) const VULKAN: DeviceKind = DeviceKind::new("vulkan");
pub(crate) const XPU: DeviceKind = DeviceKind::new("xpu");

pub(crate) fn host(index: u32) -> Device {
    Device { kind: HOST, index }
}

/// One setting with plain memory, and two with memory mapped from a file.
pub(crate) const SETTINGS: [&str; 3] = ["", "expandable_segments:True", "policy:compact"];

/// Opens a host device of its own with these settings.
pub(crate) fn device(settings: &str) -> &'static Accelerator<Host> {
    device_of(settings, 200 * MIB)
}

/// Does the same for a device with this many bytes.
pub(crate) fn device_of(settings: &str, capacity: u64) -> &'static Accelerator<Host> {
    let config = AllocatorConfig::default().updated(settings).unwrap();
    Accelerator::new(Host::new(0, capacity), 0, config).unwrap()
}
