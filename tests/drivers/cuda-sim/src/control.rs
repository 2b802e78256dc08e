//! What tests ask of the driver itself. These are no driver calls: they are not counted, and nothing makes
//! them fail.

use std::ffi::{CStr, c_char};

use sim_engine::{Planned, out};

use crate::code::Code;
use crate::state::{Driver, Handle, Session};

sim_engine::controls! { [Driver]
    /// Starts the generator anew that chooses among permitted orders.
    fn cuda_sim_seed(seed: u64) -> () => |driver, seed| driver.engine.random.seed(seed);
    /// Makes a call from now on fail with a code, whichever it is: 1 is the next.
    fn cuda_sim_fail_at(nth: u64, code: i32) -> () => |driver, nth, code| {
        driver.engine.faults.plan(Planned { name: None, nth: nth.max(1), code: Code(code) });
    };
    /// Forgets all failures that are still planned, those of the environment too; tells how many there were.
    fn cuda_sim_clear_faults() -> u64 => |driver| driver.engine.faults.clear() as u64;
    /// How many driver calls there were.
    fn cuda_sim_calls() -> u64 => |driver| driver.engine.faults.total();
    /// How often a program did what no correct one does.
    fn cuda_sim_violations() -> u64 => |driver| driver.engine.violations.len() as u64;
    /// Live allocations of device memory.
    fn cuda_sim_live_allocations() -> u64 => |driver| driver.engine.memory.live().0 as u64;
    /// Their bytes.
    fn cuda_sim_live_bytes() -> u64 => |driver| driver.engine.memory.live().1;
    /// Live blocks of pinned host memory.
    fn cuda_sim_live_pinned() -> u64 => |driver| driver.engine.host.live().0 as u64;
    /// Their bytes.
    fn cuda_sim_live_pinned_bytes() -> u64 => |driver| driver.engine.host.live().1;
    /// Streams that were made and not destroyed.
    fn cuda_sim_live_streams() -> u64 => |driver| live_streams(driver);
    /// Events that were made and not destroyed.
    fn cuda_sim_live_events() -> u64 => |driver| driver.events.len() as u64;
    /// The flags that a live event was made with.
    fn cuda_sim_event_flags(event: Handle) -> u32 => |driver, event| {
        driver.events.get(&event).map_or(u32::MAX, |event| event.flags)
    };
    /// Reserved ranges of addresses.
    fn cuda_sim_live_reservations() -> u64 => |driver| driver.engine.virtual_memory.live().0 as u64;
    /// Handles of physical memory that were not released.
    fn cuda_sim_live_physical() -> u64 => |driver| driver.engine.virtual_memory.live().1 as u64;
    /// Mappings.
    fn cuda_sim_live_mappings() -> u64 => |driver| driver.engine.virtual_memory.live().2 as u64;
    /// From now on a stream runs nothing, however often it is queried. Who waits for its work gets it,
    /// without the rest; the stream remains held. A code of the driver API.
    fn cuda_sim_hold(stream: Handle) -> i32 => |driver, stream| set_held(driver, stream, true);
    /// Ends that.
    fn cuda_sim_release(stream: Handle) -> i32 => |driver, stream| set_held(driver, stream, false);
    /// How often the primary context of a device was made.
    fn cuda_sim_contexts_made(device: i32) -> u64 => |driver, device| {
        driver.device(device).map_or(0, |device| driver.devices[device].contexts_made)
    };
    /// Copies between devices that went through the host, for want of peer access.
    fn cuda_sim_staged_copies() -> u64 => |driver| driver.engine.staged_copies;
    /// Changes how much memory a device has; what is used stays.
    fn cuda_sim_set_memory(device: i32, bytes: u64) -> i32 => |driver, device, bytes| {
        let found = driver.device(device);
        found.map_or_else(|code| code.0, |device| {
            driver.engine.devices[device].memory = bytes;
            0
        })
    };
    /// Makes contexts usable again on which every call fails.
    fn cuda_sim_reset_sticky() -> () => |driver| driver.forget_failures();
}

/// Makes the nth call of a function from now fail with a code, 1 being the next; 0 makes every one fail.
///
/// # Safety
///
/// * `name` is a text that ends with a zero.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_fail(name: *const c_char, nth: u64, code: i32) {
    // SAFETY: the caller promises a text.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Session::new().engine.faults.plan(Planned { name: Some(name), nth, code: Code(code) });
}

/// How often a function was called.
///
/// # Safety
///
/// * `name` is a text that ends with a zero.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_calls_of(name: *const c_char) -> u64 {
    // SAFETY: the caller promises a text.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Session::new().engine.faults.count_of(&name)
}

/// Writes what the violations were, one a line, as far as there is room, and a zero behind it. Tells how many
/// bytes all of it takes, the zero counted.
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

fn live_streams(driver: &Driver) -> u64 {
    let is_default = |handle: &Handle| {
        let mut contexts = driver.contexts.values();
        contexts
            .any(|context| context.legacy == *handle || context.per_thread.values().any(|own| own == handle))
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
