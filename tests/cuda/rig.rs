//! What the trials share: processes with the simulated driver in them, and its controls.
#![allow(unsafe_code)] // functions of the simulated driver, and of CUDA

use std::env;
use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::process::Command;

use accelerator_core::{Accelerator, AllocatorConfig, Backend, Statistics};
use accelerator_cuda::Cuda;
use libloading::Library;
use libtest_mimic::{Failed, Trial};

pub(crate) type Outcome = Result<(), Failed>;

/// Set for trials that use memory that is not there, on purpose.
pub(crate) const VIOLATES: &str = "ACCELERATOR_CUDA_VIOLATES";

/// Set to the trial's name in the process of a trial.
const CHILD: &str = "ACCELERATOR_CUDA_TEST";

/// What the surroundings say to drivers and to us; nothing of it reaches a trial.
const VARIABLES: [&str; 15] = [
    "ACCELERATOR_BACKEND",
    "ACCELERATOR_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_SIM_CAPABILITY",
    "CUDA_SIM_DEVICES",
    "CUDA_SIM_DRIVER_VERSION",
    "CUDA_SIM_FAIL",
    "CUDA_SIM_FAIL_AT",
    "CUDA_SIM_HOST_MEMORY",
    "CUDA_SIM_LOG",
    "CUDA_SIM_MEMORY",
    "CUDA_SIM_PEERS",
    "CUDA_SIM_SEED",
];

/// A trial that runs in a process of its own, with the simulated driver loaded ahead of any other, and these variables.
pub(crate) fn trial(
    name: impl Into<String>,
    variables: &'static [(&str, &str)],
    run: fn() -> Outcome,
) -> Trial {
    process(
        name,
        move |command| command.env("LD_PRELOAD", simulated_driver()).envs(variables.iter().copied()),
        run,
    )
}

/// A trial that runs in a process of its own without any driver: where it looks for one, there is none.
pub(crate) fn trial_without_driver(name: impl Into<String>, run: fn() -> Outcome) -> Trial {
    process(name, |command| command.env_remove("LD_PRELOAD"), run)
}

fn process(
    name: impl Into<String>,
    prepare: impl FnOnce(&mut Command) -> &mut Command + Send + 'static,
    run: fn() -> Outcome,
) -> Trial {
    let name = name.into();
    Trial::test(name.clone(), move || {
        if env::var_os(CHILD).is_some_and(|running| running == *name) {
            run()?;
            return no_violations();
        }
        let mut command = Command::new(env::current_exe()?);
        command.args(["--exact", &name, "--include-ignored", "--nocapture"]).env(CHILD, &name);
        VARIABLES.into_iter().for_each(|variable| {
            command.env_remove(variable);
        });
        passes(prepare(&mut command))
    })
}

/// Runs the trial of this process in another one, with this variable.
pub(crate) fn again(variable: &str, value: &str) -> Outcome {
    let name = env::var(CHILD)?;
    let mut command = Command::new(env::current_exe()?);
    passes(command.args(["--exact", &name, "--include-ignored", "--nocapture"]).env(variable, value))
}

fn passes(command: &mut Command) -> Outcome {
    let output = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // That one passed shows that the name is right.
    match output.status.success() && stdout.contains("1 passed") {
        true => Ok(()),
        false => Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status).into()),
    }
}

/// Whether this machine has a driver of its own.
pub(crate) fn machine_has_a_driver() -> bool {
    // SAFETY: Loading a driver runs its own start-up code only.
    env::var_os(CHILD).is_none() && unsafe { accelerator_cuda::cudarc::driver::sys::is_culib_present() }
}

/// The library, which lies beside the programs of the tests.
pub(crate) fn simulated_driver() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.with_file_name(format!("{}cuda_sim{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}

/// The controls of the driver that this process has loaded; `None`: it is not the simulated one.
fn controls() -> Library {
    libloading::os::unix::Library::this().into()
}

macro_rules! control {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name($($argument: $kind),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
                let library = controls();
                // SAFETY: The simulated driver documents this type.
                let function = unsafe { library.get::<Function>($symbol) }.unwrap();
                // SAFETY: It asks for no more than its types say, and the texts given live.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

control! {
    /// Driver calls so far.
    calls = b"cuda_sim_calls" () -> u64;
    /// Makes the `n`-th call from now fail with this code.
    fail_at = b"cuda_sim_fail_at" (n: u64, code: c_int);
    fail_named = b"cuda_sim_fail" (name: *const c_char, n: u64, code: c_int);
    calls_named = b"cuda_sim_calls_of" (name: *const c_char) -> u64;
    /// Takes back the failures that have not happened yet; how many there were.
    clear_faults = b"cuda_sim_clear_faults" () -> u64;
    /// Uses of memory that is not there, and the like.
    violations = b"cuda_sim_violations" () -> u64;
    /// Keeps the work of a stream from being done until something waits for it.
    hold = b"cuda_sim_hold" (stream: usize) -> c_int;
    /// Whether this device ever had a context made.
    contexts_made = b"cuda_sim_contexts_made" (device: c_int) -> u64;
    live_allocations = b"cuda_sim_live_allocations" () -> u64;
    live_reservations = b"cuda_sim_live_reservations" () -> u64;
    live_pages = b"cuda_sim_live_physical" () -> u64;
    live_mappings = b"cuda_sim_live_mappings" () -> u64;
    live_pinned = b"cuda_sim_live_pinned" () -> u64;
    /// Streams that were made and not destroyed, the default ones not counted.
    live_streams = b"cuda_sim_live_streams" () -> u64;
    /// Copies between devices that went through the host.
    staged_copies = b"cuda_sim_staged_copies" () -> u64;
    /// Makes lost devices answer again.
    reset_sticky = b"cuda_sim_reset_sticky" ();
}

/// Makes the `n`-th call of this name from now fail with this code.
pub(crate) fn fail(name: &str, n: u64, code: c_int) {
    fail_named(CString::new(name).unwrap().as_ptr(), n, code);
}

/// Calls of this name so far.
pub(crate) fn calls_of(name: &str) -> u64 {
    calls_named(CString::new(name).unwrap().as_ptr())
}

/// Fails where the simulated driver, if it is there, saw memory used that is not there.
fn no_violations() -> Outcome {
    let library = controls();
    // SAFETY: The simulated driver documents this type.
    let simulated = unsafe { library.get::<unsafe extern "C" fn() -> u64>(b"cuda_sim_violations") }.is_ok();
    match simulated && env::var_os(VIOLATES).is_none() && violations() > 0 {
        true => Err("the simulated driver saw memory used that is not there".into()),
        false => Ok(()),
    }
}

/// The first device, opened anew.
pub(crate) fn device() -> Result<&'static Accelerator<Cuda>, Failed> {
    device_numbered(0)
}

pub(crate) fn device_numbered(ordinal: u32) -> Result<&'static Accelerator<Cuda>, Failed> {
    Cuda::probe()?;
    Ok(Accelerator::new(Cuda::open(ordinal)?, ordinal, AllocatorConfig::default())?)
}

/// Fails unless nothing is left once the caches are given back.
pub(crate) fn check_all_gone(device: &'static Accelerator<Cuda>) -> Outcome {
    give_back(device)?;
    assert_eq!((live_allocations(), live_pinned()), (0, 0), "the simulated driver's own count");
    Ok(())
}

/// Gives the caches back, after which the device must hold nothing.
pub(crate) fn give_back(device: &'static Accelerator<Cuda>) -> Outcome {
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()?;
    let Statistics { allocation, active, segment, reserved_bytes, num_device_alloc, num_device_free, .. } =
        device.allocator().statistics();
    let left = [allocation, active, segment, reserved_bytes].map(|stat| stat.all.current);
    assert_eq!((left, num_device_alloc - num_device_free), ([0; 4], 0));
    Ok(())
}
