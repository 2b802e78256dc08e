//! Commands.

use std::ffi::c_void;

use level_zero_sys::*;

use crate::arguments::{Address, Array, EventHandle, KernelHandle, ListHandle};
use crate::device::{COPY_GROUP, QUEUE_GROUPS};
use crate::gate::functions;
use crate::list::{Around, append};
use crate::module::KernelObject;
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::submit::{Action, Order};

functions! {
    /// Copies bytes between any two places.
    fn zeCommandListAppendMemoryCopy(
        list: ListHandle,
        to: Address<*mut c_void>,
        from: Address<*const c_void>,
        bytes: usize,
        signals: Option<EventHandle>,
        count: u32,
        waits: Array<*mut ze_event_handle_t>,
    ) [Init] => copy;
    /// Fills memory with a pattern.
    fn zeCommandListAppendMemoryFill(
        list: ListHandle,
        to: Address<*mut c_void>,
        pattern: Array<*const c_void>,
        pattern_bytes: usize,
        bytes: usize,
        signals: Option<EventHandle>,
        count: u32,
        waits: Array<*mut ze_event_handle_t>,
    ) [Init] => fill;
    /// Appends a barrier, which everything after it waits for. It waits for the named events, or for everything before
    /// it if none are named.
    fn zeCommandListAppendBarrier(
        list: ListHandle,
        signals: Option<EventHandle>,
        count: u32,
        waits: Array<*mut ze_event_handle_t>,
    ) [Init] => barrier;
    /// Signals an event.
    fn zeCommandListAppendSignalEvent(list: ListHandle, event: EventHandle) [Init] => signal;
    /// Makes everything after it wait for these events.
    fn zeCommandListAppendWaitOnEvents(list: ListHandle, count: u32, events: Array<*mut ze_event_handle_t>)
        [Init] => wait_on_events;
    /// Resets an event.
    fn zeCommandListAppendEventReset(list: ListHandle, event: EventHandle) [Init] => reset_event;
    /// Launches a kernel with its current arguments.
    fn zeCommandListAppendLaunchKernel(
        list: ListHandle,
        kernel: KernelHandle,
        groups: &ze_group_count_t,
        signals: Option<EventHandle>,
        count: u32,
        waits: Array<*mut ze_event_handle_t>,
    ) [Init] => launch;
    /// Writes the device's clock value to memory.
    fn zeCommandListAppendWriteGlobalTimestamp(
        list: ListHandle,
        to: Address<*mut u64>,
        signals: Option<EventHandle>,
        count: u32,
        waits: Array<*mut ze_event_handle_t>,
    ) [Init] => write_timestamp;
}

/// Checks the arguments that accompany every command.
fn around<'a>(
    list: ListHandle,
    signals: Option<EventHandle>,
    count: u32,
    waits: Array<*mut ze_event_handle_t>,
) -> Outcome<Around<'a>> {
    if waits.is_null() && count > 0 {
        return Err(Refusal::INVALID_SIZE);
    }
    // SAFETY: `count` is the length that the caller passed.
    let waits = unsafe { waits.items(count as usize) };
    Ok(Around { list, signals, waits })
}

#[allow(clippy::too_many_arguments, reason = "those of the API")]
fn copy(
    session: &mut Session,
    list: ListHandle,
    to: Address<*mut c_void>,
    from: Address<*const c_void>,
    bytes: usize,
    signals: Option<EventHandle>,
    count: u32,
    waits: Array<*mut ze_event_handle_t>,
) -> Outcome {
    let action = Action::Copy { to: to.value, from: from.value, bytes: bytes as u64 };
    append(session, around(list, signals, count, waits)?, action, Order::Free)
}

#[allow(clippy::too_many_arguments, reason = "those of the API")]
fn fill(
    session: &mut Session,
    list: ListHandle,
    to: Address<*mut c_void>,
    pattern: Array<*const c_void>,
    pattern_bytes: usize,
    bytes: usize,
    signals: Option<EventHandle>,
    count: u32,
    waits: Array<*mut ze_event_handle_t>,
) -> Outcome {
    let around = around(list, signals, count, waits)?;
    if pattern.is_null() {
        return Err(Refusal::INVALID_NULL_POINTER);
    }
    let group = &QUEUE_GROUPS[session.list(list)?.ordinal as usize];
    if !pattern_bytes.is_power_of_two() || pattern_bytes > group.longest_pattern {
        return Err(Refusal::INVALID_SIZE);
    }
    if !bytes.is_multiple_of(pattern_bytes) {
        return Err(Refusal::INVALID_SIZE);
    }
    if !to.value.is_multiple_of(pattern_bytes as u64) {
        return Err(Refusal::UNSUPPORTED_ALIGNMENT);
    }
    if to.value < sim_engine::FIRST_ADDRESS && session.find_memory(to.value).is_none() {
        session.violation(format!("a command fills {:#x}, which is not driver memory", to.value));
        return Err(Refusal::INVALID_ARGUMENT);
    }
    // SAFETY: there are as many bytes as the caller states.
    let pattern = unsafe { pattern.bytes(pattern_bytes) }.to_vec();
    let action = Action::Fill { address: to.value, pattern, bytes: bytes as u64 };
    append(session, around, action, Order::Free)
}

fn barrier(
    session: &mut Session,
    list: ListHandle,
    signals: Option<EventHandle>,
    count: u32,
    waits: Array<*mut ze_event_handle_t>,
) -> Outcome {
    let order = if count == 0 { Order::Barrier } else { Order::Gate };
    append(session, around(list, signals, count, waits)?, Action::Nothing, order)
}

fn signal(session: &mut Session, list: ListHandle, event: EventHandle) -> Outcome {
    let around = Around { list, signals: Some(event), waits: &[] };
    append(session, around, Action::Nothing, Order::Free)
}

fn wait_on_events(
    session: &mut Session,
    list: ListHandle,
    count: u32,
    events: Array<*mut ze_event_handle_t>,
) -> Outcome {
    if events.is_null() {
        return Err(Refusal::INVALID_NULL_POINTER);
    }
    append(session, around(list, None, count, events)?, Action::Nothing, Order::Gate)
}

fn reset_event(session: &mut Session, list: ListHandle, event: EventHandle) -> Outcome {
    session.list(list)?;
    session.signal(event.number)?;
    let around = Around { list, signals: None, waits: &[] };
    append(session, around, Action::Reset(event.number), Order::Free)
}

fn launch(
    session: &mut Session,
    list: ListHandle,
    kernel: KernelHandle,
    groups: &ze_group_count_t,
    signals: Option<EventHandle>,
    count: u32,
    waits: Array<*mut ze_event_handle_t>,
) -> Outcome {
    let around = around(list, signals, count, waits)?;
    if session.list(list)?.ordinal == COPY_GROUP {
        return Err(Refusal::INVALID_COMMAND_LIST_TYPE);
    }
    let KernelObject { kernel: known, arguments, group, .. } = session.kernel(kernel)?;
    let known = *known;
    let in_group: u64 = group.iter().map(|threads| u64::from(*threads)).product();
    let set: Option<Vec<u64>> = arguments.iter().copied().collect();
    let Some(arguments) = set else {
        session.violation(format!("kernel {} is run before all of its arguments are set", known.name()));
        return Err(Refusal::INVALID_ARGUMENT);
    };
    let threads = [groups.groupCountX, groups.groupCountY, groups.groupCountZ].map(u64::from);
    let threads = threads.iter().fold(in_group, |all, count| all.saturating_mul(*count));
    let action = Action::Kernel { handle: kernel.number, kernel: known, threads, arguments };
    append(session, around, action, Order::Free)
}

fn write_timestamp(
    session: &mut Session,
    list: ListHandle,
    to: Address<*mut u64>,
    signals: Option<EventHandle>,
    count: u32,
    waits: Array<*mut ze_event_handle_t>,
) -> Outcome {
    let action = Action::Timestamp(to.value);
    append(session, around(list, signals, count, waits)?, action, Order::Free)
}
