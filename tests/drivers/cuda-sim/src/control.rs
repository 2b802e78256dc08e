//! Functions that tests call on the driver itself. They are not API calls: they are not counted and never fail.

use std::ffi::{CStr, c_char};

use sim_engine::{Planned, out};

use crate::code::Code;
use crate::state::{Driver, Handle, Session};
use crate::thread;

sim_engine::controls! { [Driver]
    /// Reseeds the generator that chooses among permitted orders.
    fn cuda_sim_seed(seed: u64) -> () => |driver, seed| driver.engine.random.seed(seed);
    /// Makes a future call of any function fail with a code: 1 is the next call.
    fn cuda_sim_fail_at(nth: u64, code: i32) -> () => |driver, nth, code| {
        driver.engine.faults.plan(Planned { name: None, nth, lasts: false, code: Code(code) });
    };
    /// Makes a future call of any function fail with a code, and all calls after it.
    fn cuda_sim_fail_from(nth: u64, code: i32) -> () => |driver, nth, code| {
        driver.engine.faults.plan(Planned { name: None, nth, lasts: true, code: Code(code) });
    };
    /// Drops all planned failures, including those from the environment. Returns how many there were.
    fn cuda_sim_clear_faults() -> u64 => |driver| driver.engine.faults.clear() as u64;
    /// Returns the number of driver calls so far.
    fn cuda_sim_calls() -> u64 => |driver| driver.engine.faults.total();
    /// Returns the number of violations: things that no correct program does.
    fn cuda_sim_violations() -> u64 => |driver| driver.engine.violations.len() as u64;
    /// Returns the number of live allocations of device memory.
    fn cuda_sim_live_allocations() -> u64 => |driver| driver.engine.memory.live().0 as u64;
    /// Returns the bytes of live device memory.
    fn cuda_sim_live_bytes() -> u64 => |driver| driver.engine.memory.live().1;
    /// Returns the number of live blocks of pinned host memory.
    fn cuda_sim_live_pinned() -> u64 => |driver| driver.engine.host.live().0 as u64;
    /// Returns the bytes of live pinned host memory.
    fn cuda_sim_live_pinned_bytes() -> u64 => |driver| driver.engine.host.live().1;
    /// Returns the number of streams that were created and not destroyed.
    fn cuda_sim_live_streams() -> u64 => |driver| live_streams(driver);
    /// Returns the number of events that were created and not destroyed.
    fn cuda_sim_live_events() -> u64 => |driver| driver.events.len() as u64;
    /// Returns the flags that a live event was created with.
    fn cuda_sim_event_flags(event: Handle) -> u32 => |driver, event| {
        driver.events.get(&event).map_or(u32::MAX, |event| event.flags)
    };
    /// Returns the number of reserved address ranges.
    fn cuda_sim_live_reservations() -> u64 => |driver| driver.engine.virtual_memory.live().0 as u64;
    /// Returns the number of physical memory handles that were not released.
    fn cuda_sim_live_physical() -> u64 => |driver| driver.engine.virtual_memory.live().1 as u64;
    /// Returns the number of mappings.
    fn cuda_sim_live_mappings() -> u64 => |driver| driver.engine.virtual_memory.live().2 as u64;
    /// Returns the number of graphs that were captured and not destroyed.
    fn cuda_sim_live_graphs() -> u64 => |driver| {
        driver.graphs.keys().filter(|graph| !driver.is_being_built(**graph)).count() as u64
    };
    /// Returns the number of executable graphs that were not destroyed.
    fn cuda_sim_live_executables() -> u64 => |driver| driver.executables.len() as u64;
    /// Returns the number of captures that have not ended.
    fn cuda_sim_live_captures() -> u64 => |driver| driver.captures.len() as u64;
    /// Holds a stream: it runs nothing, however often it is queried. A caller that waits for its work makes that work
    /// run, and nothing beyond it; the stream remains held. Returns a code of the driver API.
    fn cuda_sim_hold(stream: Handle) -> i32 => |driver, stream| set_held(driver, stream, true);
    /// Ends the hold.
    fn cuda_sim_release(stream: Handle) -> i32 => |driver, stream| set_held(driver, stream, false);
    /// Returns how often the primary context of a device was created.
    fn cuda_sim_contexts_made(device: i32) -> u64 => |driver, device| {
        driver.device(device).map_or(0, |device| driver.devices[device].contexts_made)
    };
    /// Returns the number of copies between devices that went through the host because peer access was missing.
    fn cuda_sim_staged_copies() -> u64 => |driver| driver.engine.staged_copies;
    /// Changes a device's total memory. The memory in use stays the same.
    fn cuda_sim_set_memory(device: i32, bytes: u64) -> i32 => |driver, device, bytes| {
        let found = driver.device(device);
        found.map_or_else(|code| code.0, |device| {
            driver.engine.devices[device].memory = bytes;
            0
        })
    };
    /// Makes contexts usable again after a permanent failure.
    fn cuda_sim_reset_sticky() -> () => |driver| driver.forget_failures();
}

/// Makes a future call of a function fail with a code: 1 is its next call, 0 every call.
///
/// # Safety
///
/// * `name` is a zero-terminated string.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_fail(name: *const c_char, nth: u64, code: i32) {
    // SAFETY: the caller promises a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Session::new().engine.faults.plan(Planned { name: Some(name), nth, lasts: nth == 0, code: Code(code) });
}

/// Returns how often a function was called.
///
/// # Safety
///
/// * `name` is a zero-terminated string.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_calls_of(name: *const c_char) -> u64 {
    // SAFETY: the caller promises a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Session::new().engine.faults.count_of(&name)
}

/// Writes the violations, one per line, followed by a zero byte, as far as there is room. Returns the bytes needed for
/// all of it, including the zero.
///
/// # Safety
///
/// * `buffer` has room for `length` bytes, or `length` is 0.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_violation_text(buffer: *mut c_char, length: usize) -> usize {
    let text = Session::new().engine.violations.join("\n");
    // SAFETY: the caller promises the room.
    unsafe { out::put_text(buffer, length, &text) };
    text.len() + 1
}

/// The context that is current on the thread, or 0, as fast as CUDA's runtime knows it.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_current_context() -> usize {
    thread::current()
}

fn live_streams(driver: &Driver) -> u64 {
    let is_default = |handle: &Handle| {
        let mut contexts = driver.contexts.values();
        contexts.any(|context| context.legacy == *handle || context.per_thread.values().any(|own| own == handle))
    };
    let live = driver.engine.lanes.iter().filter(|(handle, lane)| !lane.is_closed() && !is_default(handle));
    live.count() as u64
}

fn set_held(driver: &mut Driver, stream: Handle, held: bool) -> i32 {
    match driver.stream(stream) {
        Ok(stream) => {
            if let Some(lane) = driver.engine.lanes.get_mut(&stream) {
                lane.held = held;
            }
            0
        }
        Err(code) => code.0,
    }
}
