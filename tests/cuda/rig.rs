//! Shared by the trials: processes that load the simulated driver, and its control functions.
#![allow(unsafe_code)] // calls the simulated driver and CUDA

use std::env;
use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::process::Command;

use accelerator_core::{Accelerator, Stream};
use accelerator_cuda::Cuda;
use libloading::Library;
use libtest_mimic::{Completion, Failed, Trial};

pub(crate) use crate::programs::process::Outcome;
use crate::programs::process::{self, VIOLATES, Variables};
use crate::programs::simulated::{self, Simulated, controls, text_of};
pub(crate) use crate::programs::simulated::{check_all_gone, give_back};

pub(crate) type Device = &'static Accelerator<Cuda>;

/// Creates a trial in its own process, which has these variables and loads the simulated driver before any other.
pub(crate) fn trial(name: impl Into<String>, variables: Variables, run: fn() -> Outcome) -> Trial {
    let prepare = |command: &mut Command| {
        command.env("LD_PRELOAD", simulated_driver()).envs(variables.iter().copied());
    };
    in_a_process(name, prepare, run)
}

/// Creates a trial in its own process without any driver: there is none where it searches.
pub(crate) fn trial_without_driver(name: impl Into<String>, run: fn() -> Outcome) -> Trial {
    let prepare = |command: &mut Command| {
        command.env_remove("LD_PRELOAD");
    };
    in_a_process(name, prepare, run)
}

fn in_a_process(
    name: impl Into<String>,
    prepare: impl FnOnce(&mut Command) + Send + 'static,
    run: fn() -> Outcome,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || {
        if process::is_of(&name) {
            run()?;
            return no_violations().map(|()| Completion::Completed);
        }
        let mut command = process::child(&name)?;
        prepare(&mut command);
        process::completed(&mut command)
    })
}

/// Whether this machine has its own driver.
pub(crate) fn machine_has_a_driver() -> bool {
    // SAFETY: Loading a driver runs only its own initialization code.
    env::var_os(process::CHILD).is_none() && unsafe { accelerator_cuda::cudarc::driver::sys::is_culib_present() }
}

pub(crate) fn simulated_driver() -> PathBuf {
    process::beside("cuda_sim")
}

/// Returns the functions of the driver that this process has loaded.
fn controls() -> Library {
    libloading::os::unix::Library::this().into()
}

controls! {
    of controls();
    /// Returns the number of driver calls so far.
    calls = b"cuda_sim_calls" () -> u64;
    /// Makes the `n`-th call from now fail with this code.
    fail_at = b"cuda_sim_fail_at" (n: u64, code: c_int);
    fail_numbered_from = b"cuda_sim_fail_from" (n: u64, code: c_int);
    /// Reseeds the choice among permitted orders.
    reseed = b"cuda_sim_seed" (seed: u64);
    fail_named = b"cuda_sim_fail" (name: *const c_char, n: u64, code: c_int);
    calls_named = b"cuda_sim_calls_of" (name: *const c_char) -> u64;
    /// Cancels the failures that have not happened yet, and returns how many there were.
    clear_faults = b"cuda_sim_clear_faults" () -> u64;
    /// Returns the number of violations, such as accesses to freed memory.
    violations = b"cuda_sim_violations" () -> u64;
    violation_bytes = b"cuda_sim_violation_text" (text: *mut c_char, room: usize) -> usize;
    /// Keeps a stream's work from running until something waits for it.
    hold = b"cuda_sim_hold" (stream: usize) -> c_int;
    /// Returns how often this device's context was created.
    contexts_made = b"cuda_sim_contexts_made" (device: c_int) -> u64;
    /// Returns the flags that a live event was created with.
    event_flags = b"cuda_sim_event_flags" (event: usize) -> u32;
    live_allocations = b"cuda_sim_live_allocations" () -> u64;
    live_reservations = b"cuda_sim_live_reservations" () -> u64;
    live_pages = b"cuda_sim_live_physical" () -> u64;
    live_mappings = b"cuda_sim_live_mappings" () -> u64;
    live_pinned = b"cuda_sim_live_pinned" () -> u64;
    live_graphs = b"cuda_sim_live_graphs" () -> u64;
    live_executables = b"cuda_sim_live_executables" () -> u64;
    live_captures = b"cuda_sim_live_captures" () -> u64;
    live_events = b"cuda_sim_live_events" () -> u64;
    /// Returns the number of streams that were created and not destroyed, without the default ones.
    live_streams = b"cuda_sim_live_streams" () -> u64;
    /// Returns the number of copies between devices that went through the host.
    staged_copies = b"cuda_sim_staged_copies" () -> u64;
    /// Makes lost devices usable again.
    reset_sticky = b"cuda_sim_reset_sticky" ();
}

/// Makes the `n`-th call of this name from now fail with this code.
pub(crate) fn fail(name: &str, n: u64, code: c_int) {
    fail_named(CString::new(name).unwrap().as_ptr(), n, code);
}

/// Returns the number of calls of this name so far.
pub(crate) fn calls_of(name: &str) -> u64 {
    calls_named(CString::new(name).unwrap().as_ptr())
}

/// Checks that no captures and graphs are left.
pub(crate) fn check_no_graphs() {
    assert_eq!([live_captures(), live_graphs(), live_executables()], [0; 3]);
}

/// Fails if the simulated driver is loaded and has recorded violations.
fn no_violations() -> Outcome {
    let library = controls();
    // SAFETY: The simulated driver documents this type.
    let simulated = unsafe { library.get::<unsafe extern "C" fn() -> u64>(b"cuda_sim_violations") }.is_ok();
    match simulated && env::var_os(VIOLATES).is_none() && violations() > 0 {
        true => Err(format!("the simulated driver recorded violations:\n{}", text_of(violation_bytes)).into()),
        false => Ok(()),
    }
}

impl Simulated for Cuda {
    const REFUSED: u32 = 1;
    const OUT_OF_MEMORY: u32 = 2;

    fn calls() -> u64 {
        calls()
    }

    fn seed(seed: u64) {
        reseed(seed);
    }

    fn calls_of(name: &str) -> u64 {
        calls_of(name)
    }

    fn fail_at(n: u64, code: u32) {
        fail_at(n, code as c_int);
    }

    fn fail_from(n: u64, code: u32) {
        fail_numbered_from(n, code as c_int);
    }

    fn fail(name: &str, n: u64, code: u32) {
        fail(name, n, code as c_int);
    }

    fn clear_faults() -> u64 {
        clear_faults()
    }

    fn hold(stream: Stream<Self>) {
        hold(stream.native().native().expose_provenance());
    }

    fn live() -> [u64; 2] {
        [live_allocations(), live_pinned()]
    }

    fn live_virtual() -> [u64; 3] {
        [live_reservations(), live_pages(), live_mappings()]
    }
}

/// Opens the first device again.
pub(crate) fn device() -> Result<Device, Failed> {
    simulated::device()
}

pub(crate) fn device_numbered(ordinal: u32) -> Result<Device, Failed> {
    simulated::device_numbered(ordinal)
}
