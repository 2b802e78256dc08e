//! Runs of `accel`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) const INFO: [&str; 3] = ["info", "--backend", "opencl"];
pub(crate) const CONFORMANCE: [&str; 4] = ["conformance", "--backend", "opencl", "B17"];

/// Returns a command that runs `accel` without OpenCL, Vulkan and Level Zero drivers and without settings from the
/// environment.
pub(crate) fn accel(arguments: &[&str]) -> Command {
    let mut command = accel_with_drivers(arguments);
    // OpenCL loaders look for drivers there.
    command.env("OCL_ICD_VENDORS", folder("no-opencl-drivers")).env_remove("OCL_ICD_FILENAMES");
    // With these variables, Vulkan's loader opens only this driver. Old loaders know the second one only.
    command.env("VK_DRIVER_FILES", "/no/such/driver").env("VK_ICD_FILENAMES", "/no/such/driver");
    // With this variable, Level Zero's loader opens only this driver. An empty name crashes old loaders.
    command.env("ZE_ENABLE_ALT_DRIVERS", "/no/such/driver");
    command
}

/// Returns a command that runs `accel` with the drivers of the machine, but without settings from the environment.
pub(crate) fn accel_with_drivers(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_accel"));
    command.args(arguments).env("RUST_BACKTRACE", "1");
    for name in [
        "ACCELERATOR_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "ACCELERATOR_HOST_DEVICES",
        "ACCELERATOR_HOST_CAPACITY",
        "ACCELERATOR_OPENCL_CAPACITY",
        "ACCELERATOR_VULKAN_CAPACITY",
        "ACCELERATOR_VULKAN_QUEUES",
        "ACCELERATOR_REQUIRE",
    ] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Ended {
    Ended::of(accel(arguments).output().unwrap())
}

pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> Ended {
    let mut command = accel(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Ended::of(child.wait_with_output().unwrap())
}

pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn fails(&self, status: i32, message: &str) {
        assert_eq!(self.status, Some(status), "{}", self.error);
        assert!(self.error.contains(message), "expected `{message}` in:\n{}", self.error);
        assert!(!self.error.contains("backtrace") && !self.error.contains("panicked"), "{}", self.error);
    }
}

/// Returns the path of a file that PyTorch wrote.
pub(crate) fn of_pytorch(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pytorch").join(name);
    path.to_str().unwrap().to_owned()
}

/// Creates an empty folder for one test.
pub(crate) fn empty_folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    folder(name)
}

/// Creates a file in the temporary folder of the tests.
pub(crate) fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Creates a folder in the temporary folder of the tests.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}
