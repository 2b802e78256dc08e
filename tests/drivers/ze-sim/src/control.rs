//! Functions that tests call on the driver itself. They are not API calls: they are not counted and never fail.

use std::ffi::{CStr, c_char};

use level_zero_sys::ze_result_t;
use sim_engine::Planned;

use crate::list::{Kind, List};
use crate::result::Refusal;
use crate::state::{Driver, Handle, Session};

sim_engine::controls! {
    [Driver]
    /// Reseeds the generator that chooses among permitted orders.
    fn ze_sim_seed(seed: u64) -> () => |driver, seed| driver.engine.random.seed(seed);
    /// Makes a future call of any function fail with a code: 1 is the next call.
    fn ze_sim_fail_at(nth: u64, code: u32) -> () => |driver, nth, code| {
        driver.engine.faults.plan(Planned { name: None, nth, lasts: false, code: Refusal(ze_result_t(code)) });
    };
    /// Drops all planned failures, including those from the environment. Returns how many there were.
    fn ze_sim_clear_faults() -> u64 => |driver| driver.engine.faults.clear() as u64;
    /// Returns the number of calls so far.
    fn ze_sim_calls() -> u64 => |driver| driver.engine.faults.total();
    /// Returns the number of violations: things that no correct program does.
    fn ze_sim_violations() -> u64 => |driver| driver.engine.violations.len() as u64;
    /// Returns the number of live allocations of device memory.
    fn ze_sim_live_allocations() -> u64 => |driver| driver.engine.memory.live().0 as u64;
    /// Returns the bytes of live device memory.
    fn ze_sim_live_bytes() -> u64 => |driver| driver.engine.memory.live().1;
    /// Returns the number of live allocations of host and shared memory.
    fn ze_sim_live_host() -> u64 => |driver| driver.engine.host.live().0 as u64;
    /// Returns the bytes of live host and shared memory.
    fn ze_sim_live_host_bytes() -> u64 => |driver| driver.engine.host.live().1;
    /// Returns the number of events that were created and not destroyed.
    fn ze_sim_live_events() -> u64 => |driver| driver.events.len() as u64;
    /// Returns the number of live event pools.
    fn ze_sim_live_pools() -> u64 => |driver| driver.pools.len() as u64;
    /// Returns the number of live command lists, immediate and recorded.
    fn ze_sim_live_lists() -> u64 => |driver| driver.lists.len() as u64;
    /// Returns the number of live command queues.
    fn ze_sim_live_queues() -> u64 => |driver| driver.queues.len() as u64;
    /// Returns the number of live fences.
    fn ze_sim_live_fences() -> u64 => |driver| driver.fences.len() as u64;
    /// Returns the number of live contexts.
    fn ze_sim_live_contexts() -> u64 => |driver| driver.contexts.len() as u64;
    /// Returns the number of live modules.
    fn ze_sim_live_modules() -> u64 => |driver| driver.modules.len() as u64;
    /// Returns the number of live kernels.
    fn ze_sim_live_kernels() -> u64 => |driver| driver.kernels.len() as u64;
    /// Returns the number of live build logs.
    fn ze_sim_live_build_logs() -> u64 => |driver| driver.build_logs.len() as u64;
    /// Returns the number of reserved address ranges.
    fn ze_sim_live_reservations() -> u64 => |driver| driver.reservations.len() as u64;
    /// Returns the number of live physical memory objects.
    fn ze_sim_live_physical() -> u64 => |driver| driver.physical.len() as u64;
    /// Returns the number of mappings.
    fn ze_sim_live_mappings() -> u64 => |driver| driver.engine.virtual_memory.live().2 as u64;
    /// Holds an immediate list or a queue: it runs nothing, however often it is queried. A caller that waits for its
    /// work without a timeout makes that work run, and nothing beyond it; the list or queue remains held. Returns a
    /// code of the API.
    fn ze_sim_hold(owner: Handle) -> u32 => |driver, owner| set_held(driver, owner, true);
    /// Ends the hold.
    fn ze_sim_release(owner: Handle) -> u32 => |driver, owner| set_held(driver, owner, false);
    /// Changes a device's total memory. `device` is its index in the list of devices. The memory in use stays the same.
    fn ze_sim_set_memory(device: u32, bytes: u64) -> u32 => |driver, device, bytes| {
        match driver.engine.devices.get_mut(device as usize) {
            Some(device) => {
                device.memory = bytes;
                0
            }
            None => Refusal::INVALID_ARGUMENT.0.0,
        }
    };
    /// Makes lost devices usable again.
    fn ze_sim_reset_lost() -> () => |driver| driver.find_lost();
}

/// Makes a future call of a function fail with a code: 1 is its next call, 0 every call.
///
/// # Safety
///
/// * `name` is a zero-terminated string.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ze_sim_fail(name: *const c_char, nth: u64, code: u32) {
    // SAFETY: the caller promises a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let planned = Planned { name: Some(name), nth, lasts: nth == 0, code: Refusal(ze_result_t(code)) };
    Session::new().engine.faults.plan(planned);
}

/// Returns how often a function was called.
///
/// # Safety
///
/// * `name` is a zero-terminated string.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ze_sim_calls_of(name: *const c_char) -> u64 {
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
pub unsafe extern "C" fn ze_sim_violation_text(buffer: *mut c_char, length: usize) -> usize {
    let text = Session::new().engine.violations.join("\n");
    // SAFETY: the caller promises the room.
    unsafe { sim_engine::out::put_text(buffer, length, &text) };
    text.len() + 1
}

fn set_held(driver: &mut Driver, owner: Handle, held: bool) -> u32 {
    let list = driver.lists.get(&owner).and_then(|list| match list {
        List { kind: Kind::Immediate { lanes, .. }, .. } => Some(lanes),
        _ => None,
    });
    let queue = driver.queues.get(&owner).map(|queue| &queue.lanes);
    let Some(lanes) = list.or(queue) else { return Refusal::INVALID_ARGUMENT.0.0 };
    for lane in lanes.lanes() {
        if let Some(lane) = driver.engine.lanes.get_mut(lane) {
            lane.held = held;
        }
    }
    0
}
