//! The control functions of the simulated driver that the loader opened.
#![allow(unsafe_code)] // calls functions of that driver

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use accelerator_core::Stream;
use accelerator_xpu::Xpu;
use accelerator_xpu::sys::{ze_command_list_handle_t, ze_result_t};
use libloading::Library;

use crate::programs::process::beside;
use crate::programs::simulated::{Simulated, controls, text_of};

pub(crate) const REFUSED: ze_result_t = ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;
pub(crate) const OUT_OF_MEMORY: ze_result_t = ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
pub(crate) const LOST: ze_result_t = ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST;

/// The same library as the loader's, because an open library is not opened twice.
static DRIVER: LazyLock<Library> = LazyLock::new(|| {
    // SAFETY: Its initialisers have no preconditions.
    unsafe { Library::new(beside("ze_sim")) }.unwrap()
});

controls! {
    of DRIVER;
    /// Returns the number of driver calls so far.
    calls = b"ze_sim_calls" () -> u64;
    calls_named = b"ze_sim_calls_of" (name: *const c_char) -> u64;
    /// Reseeds the choice among permitted orders.
    seed = b"ze_sim_seed" (seed: u64);
    fail_numbered = b"ze_sim_fail_at" (n: u64, code: u32);
    fail_named = b"ze_sim_fail" (name: *const c_char, n: u64, code: u32);
    /// Cancels the failures that have not happened yet, and returns how many there were.
    clear_faults = b"ze_sim_clear_faults" () -> u64;
    violation_bytes = b"ze_sim_violation_text" (text: *mut c_char, room: usize) -> usize;
    hold_handle = b"ze_sim_hold" (list: usize) -> u32;
    release_handle = b"ze_sim_release" (list: usize) -> u32;
    live_allocations = b"ze_sim_live_allocations" () -> u64;
    /// Returns their bytes.
    live_bytes = b"ze_sim_live_bytes" () -> u64;
    live_host = b"ze_sim_live_host" () -> u64;
    live_contexts = b"ze_sim_live_contexts" () -> u64;
    live_lists = b"ze_sim_live_lists" () -> u64;
    live_queues = b"ze_sim_live_queues" () -> u64;
    live_events = b"ze_sim_live_events" () -> u64;
    live_pools = b"ze_sim_live_pools" () -> u64;
    live_reservations = b"ze_sim_live_reservations" () -> u64;
    live_physical = b"ze_sim_live_physical" () -> u64;
    live_mappings = b"ze_sim_live_mappings" () -> u64;
    live_modules = b"ze_sim_live_modules" () -> u64;
    live_kernels = b"ze_sim_live_kernels" () -> u64;
    /// Sets how much memory a device has.
    set_memory = b"ze_sim_set_memory" (device: u32, bytes: u64) -> u32;
    /// Makes lost devices usable again.
    reset_lost = b"ze_sim_reset_lost" ();
}

/// Makes the `n`-th call from now fail with this code.
pub(crate) fn fail_at(n: u64, code: ze_result_t) {
    fail_numbered(n, code.0);
}

/// Makes the `n`-th call of this name from now fail with this code, or every call if `n` is 0.
pub(crate) fn fail(name: &str, n: u64, code: ze_result_t) {
    fail_named(CString::new(name).unwrap().as_ptr(), n, code.0);
}

/// Returns the number of calls of this name so far.
pub(crate) fn calls_of(name: &str) -> u64 {
    calls_named(CString::new(name).unwrap().as_ptr())
}

/// Keeps the list from running anything, however often it is queried, until something waits for it without a timeout.
pub(crate) fn hold(list: ze_command_list_handle_t) {
    assert_eq!(hold_handle(list.expose_provenance()), 0);
}

pub(crate) fn release(list: ze_command_list_handle_t) {
    assert_eq!(release_handle(list.expose_provenance()), 0);
}

/// Returns the violations, one per line.
pub(crate) fn violation_text() -> String {
    text_of(violation_bytes)
}

/// Returns the number of live objects of each kind. Zeros are left out.
pub(crate) fn live() -> Vec<(&'static str, u64)> {
    let all = [
        ("allocations", live_allocations()),
        ("host", live_host()),
        ("contexts", live_contexts()),
        ("lists", live_lists()),
        ("queues", live_queues()),
        ("events", live_events()),
        ("pools", live_pools()),
        ("reservations", live_reservations()),
        ("physical", live_physical()),
        ("mappings", live_mappings()),
        ("modules", live_modules()),
        ("kernels", live_kernels()),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// How many calls fail one after another. No wait makes as many attempts before it gives up, if it does.
const MANY: u64 = 300;

impl Simulated for Xpu {
    const REFUSED: u32 = REFUSED.0;
    const OUT_OF_MEMORY: u32 = OUT_OF_MEMORY.0;

    fn calls() -> u64 {
        calls()
    }

    fn seed(number: u64) {
        seed(number);
    }

    fn calls_of(name: &str) -> u64 {
        calls_of(name)
    }

    fn fail_at(n: u64, code: u32) {
        fail_numbered(n, code);
    }

    fn fail_from(n: u64, code: u32) {
        // Where the host must not go on before work is done, the backend waits for as long as calls fail.
        (n..n + MANY).for_each(|n| fail_numbered(n, code));
    }

    fn fail(name: &str, n: u64, code: u32) {
        fail(name, n, ze_result_t(code));
    }

    fn clear_faults() -> u64 {
        clear_faults()
    }

    fn hold(stream: Stream<Self>) {
        hold(stream.native().native());
    }

    fn live() -> [u64; 2] {
        [live_allocations(), live_host()]
    }

    fn live_virtual() -> [u64; 3] {
        [live_reservations(), live_physical(), live_mappings()]
    }
}
