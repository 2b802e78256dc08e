//! What tests ask of the driver itself. These are no calls of the API: they are not counted, and nothing
//! makes them fail.

use std::ffi::{CStr, c_char};

use level_zero_sys::ze_result_t;
use sim_engine::Planned;

use crate::list::{Kind, List};
use crate::result::Refusal;
use crate::state::{Driver, Handle, Session};

sim_engine::controls! {
    [Driver]
    /// Starts the generator anew that chooses among permitted orders.
    fn ze_sim_seed(seed: u64) -> () => |driver, seed| driver.engine.random.seed(seed);
    /// Makes a call from now on fail with a code, whichever it is: 1 is the next.
    fn ze_sim_fail_at(nth: u64, code: u32) -> () => |driver, nth, code| {
        driver.engine.faults.plan(Planned { name: None, nth: nth.max(1), code: Refusal(ze_result_t(code)) });
    };
    /// Forgets all failures that are still planned, those of the environment too; tells how many there were.
    fn ze_sim_clear_faults() -> u64 => |driver| driver.engine.faults.clear() as u64;
    /// How many calls there were.
    fn ze_sim_calls() -> u64 => |driver| driver.engine.faults.total();
    /// How often a program did what no correct one does.
    fn ze_sim_violations() -> u64 => |driver| driver.engine.violations.len() as u64;
    /// Live allocations of device memory.
    fn ze_sim_live_allocations() -> u64 => |driver| driver.engine.memory.live().0 as u64;
    /// Their bytes.
    fn ze_sim_live_bytes() -> u64 => |driver| driver.engine.memory.live().1;
    /// Live allocations of host and shared memory.
    fn ze_sim_live_host() -> u64 => |driver| driver.engine.host.live().0 as u64;
    /// Their bytes.
    fn ze_sim_live_host_bytes() -> u64 => |driver| driver.engine.host.live().1;
    /// Events that were made and not destroyed.
    fn ze_sim_live_events() -> u64 => |driver| driver.events.len() as u64;
    /// Event pools.
    fn ze_sim_live_pools() -> u64 => |driver| driver.pools.len() as u64;
    /// Command lists, immediate and recorded.
    fn ze_sim_live_lists() -> u64 => |driver| driver.lists.len() as u64;
    /// Command queues.
    fn ze_sim_live_queues() -> u64 => |driver| driver.queues.len() as u64;
    /// Fences.
    fn ze_sim_live_fences() -> u64 => |driver| driver.fences.len() as u64;
    /// Contexts.
    fn ze_sim_live_contexts() -> u64 => |driver| driver.contexts.len() as u64;
    /// Modules.
    fn ze_sim_live_modules() -> u64 => |driver| driver.modules.len() as u64;
    /// Kernels.
    fn ze_sim_live_kernels() -> u64 => |driver| driver.kernels.len() as u64;
    /// Texts of builds.
    fn ze_sim_live_build_logs() -> u64 => |driver| driver.build_logs.len() as u64;
    /// Reserved ranges of addresses.
    fn ze_sim_live_reservations() -> u64 => |driver| driver.reservations.len() as u64;
    /// Physical memories.
    fn ze_sim_live_physical() -> u64 => |driver| driver.physical.len() as u64;
    /// Mappings.
    fn ze_sim_live_mappings() -> u64 => |driver| driver.engine.virtual_memory.live().2 as u64;
    /// From now on an immediate list or a queue runs nothing, however often it is asked about. Who waits for
    /// its work for ever gets it, without the rest; it remains held. A code of the API.
    fn ze_sim_hold(owner: Handle) -> u32 => |driver, owner| set_held(driver, owner, true);
    /// Ends that.
    fn ze_sim_release(owner: Handle) -> u32 => |driver, owner| set_held(driver, owner, false);
    /// Changes how much memory a device has, by its place in the list of devices; what is used stays.
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

/// Makes the nth call of a function from now fail with a code, 1 being the next; 0 makes every one fail.
///
/// # Safety
///
/// * `name` is a text that ends with a zero.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ze_sim_fail(name: *const c_char, nth: u64, code: u32) {
    // SAFETY: the caller promises a text.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let planned = Planned { name: Some(name), nth, code: Refusal(ze_result_t(code)) };
    Session::new().engine.faults.plan(planned);
}

/// How often a function was called.
///
/// # Safety
///
/// * `name` is a text that ends with a zero.
// SAFETY: no other function of a program has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ze_sim_calls_of(name: *const c_char) -> u64 {
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
