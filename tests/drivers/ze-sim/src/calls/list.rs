//! Command lists, except appending to them.

use level_zero_sys::*;

use crate::arguments::{ContextHandle, DeviceHandle, ListHandle, Object, Place};
use crate::calls::queue::{check_desc, is_synchronous};
use crate::device::QUEUE_GROUPS;
use crate::gate::functions;
use crate::list::{IN_ORDER_SINCE, Kind, List};
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::wait::wait;

functions! {
    /// Creates a list that records commands for queues of a group.
    fn zeCommandListCreate(
        context: ContextHandle,
        device: DeviceHandle,
        desc: &ze_command_list_desc_t,
        list: Place<'_, ze_command_list_handle_t>,
    ) [Init] => create;
    /// Creates a list that executes commands as they are appended.
    fn zeCommandListCreateImmediate(
        context: ContextHandle,
        device: DeviceHandle,
        desc: &ze_command_queue_desc_t,
        list: Place<'_, ze_command_list_handle_t>,
    ) [Init] => create_immediate;
    /// Destroys a list immediately.
    fn zeCommandListDestroy(list: ListHandle) [Init] => destroy;
    /// Ends its recording.
    fn zeCommandListClose(list: ListHandle) [Init] => close;
    /// Starts its recording again, with an empty list.
    fn zeCommandListReset(list: ListHandle) [Init] => reset;
    /// Waits for the commands of an immediate list.
    fn zeCommandListHostSynchronize(list: ListHandle, timeout: u64) [Init] => synchronize;
    /// Returns its device.
    fn zeCommandListGetDeviceHandle(list: ListHandle, device: Place<'_, ze_device_handle_t>)
        [Init] => device_of;
    /// Returns its context.
    fn zeCommandListGetContextHandle(list: ListHandle, context: Place<'_, ze_context_handle_t>)
        [Init] => context_of;
    /// Returns the ordinal of its queue group.
    fn zeCommandListGetOrdinal(list: ListHandle, ordinal: Place<'_, u32>) [Init] => ordinal_of;
    /// Whether it is an immediate list.
    fn zeCommandListIsImmediate(list: ListHandle, immediate: Place<'_, ze_bool_t>) [Init] => is_immediate;
}

fn create(
    session: &mut Session,
    context: ContextHandle,
    device: DeviceHandle,
    desc: &ze_command_list_desc_t,
    list: Place<'_, ze_command_list_handle_t>,
) -> Outcome {
    let (context, device) = session.context_on(context, device)?;
    session.check_type(desc);
    let known_flags = 0x1f;
    if desc.flags > known_flags {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    let ordinal = desc.commandQueueGroupOrdinal;
    if ordinal as usize >= QUEUE_GROUPS.len() {
        return Err(Refusal::INVALID_ARGUMENT);
    }
    let flag = ze_command_list_flag_t::ZE_COMMAND_LIST_FLAG_IN_ORDER.0;
    let in_order = session.settings.version >= IN_ORDER_SINCE && desc.flags & flag != 0;
    let kind = Kind::Recorded { commands: Vec::new(), closed: false, running: Vec::new() };
    let handle = session.engine.new_handle();
    session.lists.insert(handle, List { context, device, ordinal, in_order, kind });
    list.put(ListHandle::new(handle).raw());
    Ok(())
}

fn create_immediate(
    session: &mut Session,
    context: ContextHandle,
    device: DeviceHandle,
    desc: &ze_command_queue_desc_t,
    list: Place<'_, ze_command_list_handle_t>,
) -> Outcome {
    let (context, device) = session.context_on(context, device)?;
    check_desc(session, desc)?;
    let flag = ze_command_queue_flag_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER.0;
    let in_order = session.settings.version >= IN_ORDER_SINCE && desc.flags & flag != 0;
    let handle = session.engine.new_handle();
    let lanes = session.open_lanes(handle, device, in_order);
    let kind = Kind::Immediate { lanes, synchronous: is_synchronous(desc) };
    session.lists.insert(handle, List { context, device, ordinal: desc.ordinal, in_order, kind });
    list.put(ListHandle::new(handle).raw());
    Ok(())
}

fn destroy(session: &mut Session, list: ListHandle) -> Outcome {
    session.destroy_list(list)
}

fn close(session: &mut Session, list: ListHandle) -> Outcome {
    let (_, closed) = session.recorded(list)?;
    *closed = true;
    Ok(())
}

fn reset(session: &mut Session, list: ListHandle) -> Outcome {
    session.recorded(list)?;
    session.check_list_unused(list, "reset")?;
    let (commands, closed) = session.recorded(list)?;
    commands.clear();
    *closed = false;
    Ok(())
}

fn synchronize(session: &mut Session, list: ListHandle, timeout: u64) -> Outcome {
    let List { device, kind, .. } = session.list(list)?;
    let device = *device;
    // Required by the specification.
    let Kind::Immediate { lanes, .. } = kind else { return Err(Refusal::NOT_READY) };
    let lanes = lanes.clone();
    let ends: Vec<_> = lanes.ends(&session.engine).into_iter().map(Into::into).collect();
    wait(session, &ends, timeout, &[device])
}

fn device_of(session: &mut Session, list: ListHandle, device: Place<'_, ze_device_handle_t>) -> Outcome {
    let own = session.list(list)?.device;
    device.put(DeviceHandle::new(session.devices[own].handle).raw());
    Ok(())
}

fn context_of(session: &mut Session, list: ListHandle, context: Place<'_, ze_context_handle_t>) -> Outcome {
    let own: ContextHandle = Object::new(session.list(list)?.context);
    context.put(own.raw());
    Ok(())
}

fn ordinal_of(session: &mut Session, list: ListHandle, ordinal: Place<'_, u32>) -> Outcome {
    ordinal.put(session.list(list)?.ordinal);
    Ok(())
}

fn is_immediate(session: &mut Session, list: ListHandle, immediate: Place<'_, ze_bool_t>) -> Outcome {
    immediate.put(matches!(session.list(list)?.kind, Kind::Immediate { .. }).into());
    Ok(())
}
