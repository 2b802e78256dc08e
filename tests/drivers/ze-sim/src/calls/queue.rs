//! Command queues.

use level_zero_sys::*;

use crate::arguments::{Array, ContextHandle, DeviceHandle, FenceHandle, Object, Place, QueueHandle};
use crate::device::QUEUE_GROUPS;
use crate::gate::functions;
use crate::queue::Queue;
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::wait::wait;

functions! {
    /// Creates a queue in one of a device's queue groups.
    fn zeCommandQueueCreate(
        context: ContextHandle,
        device: DeviceHandle,
        desc: &ze_command_queue_desc_t,
        queue: Place<'_, ze_command_queue_handle_t>,
    ) [Init] => create;
    /// Destroys a queue immediately.
    fn zeCommandQueueDestroy(queue: QueueHandle) [Init] => destroy;
    /// Executes closed lists, and signals a fence when they are over.
    fn zeCommandQueueExecuteCommandLists(
        queue: QueueHandle,
        count: u32,
        lists: Array<*mut ze_command_list_handle_t>,
        fence: Option<FenceHandle>,
    ) [Init] => execute;
    /// Waits for all of its work.
    fn zeCommandQueueSynchronize(queue: QueueHandle, timeout: u64) [Init] => synchronize;
}

/// Checks that a descriptor requests what exists. Like real drivers, it accepts the flag that only newer versions
/// define.
pub(crate) fn check_desc(session: &mut Session, desc: &ze_command_queue_desc_t) -> Outcome {
    session.check_type(desc);
    let modes = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS.0;
    let priorities = ze_command_queue_priority_t::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH.0;
    let known_flags = 7;
    if desc.flags > known_flags || desc.mode.0 > modes || desc.priority.0 > priorities {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    let group = QUEUE_GROUPS.get(desc.ordinal as usize).ok_or(Refusal::INVALID_ARGUMENT)?;
    if desc.index >= group.queues { Err(Refusal::INVALID_ARGUMENT) } else { Ok(()) }
}

pub(crate) fn is_synchronous(desc: &ze_command_queue_desc_t) -> bool {
    desc.mode == ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS
}

fn create(
    session: &mut Session,
    context: ContextHandle,
    device: DeviceHandle,
    desc: &ze_command_queue_desc_t,
    queue: Place<'_, ze_command_queue_handle_t>,
) -> Outcome {
    let (context, device) = session.context_on(context, device)?;
    check_desc(session, desc)?;
    let handle = session.engine.new_handle();
    let lanes = session.open_lanes(handle, device, false);
    let (ordinal, synchronous) = (desc.ordinal, is_synchronous(desc));
    session.queues.insert(handle, Queue { context, device, ordinal, synchronous, lanes });
    queue.put(QueueHandle::new(handle).raw());
    Ok(())
}

fn destroy(session: &mut Session, queue: QueueHandle) -> Outcome {
    session.destroy_queue(queue)
}

fn execute(
    session: &mut Session,
    queue: QueueHandle,
    count: u32,
    lists: Array<*mut ze_command_list_handle_t>,
    fence: Option<FenceHandle>,
) -> Outcome {
    session.queue(queue)?;
    if lists.is_null() {
        return Err(Refusal::INVALID_NULL_POINTER);
    }
    if count == 0 {
        return Err(Refusal::INVALID_SIZE);
    }
    // SAFETY: `count` is the length that the caller passed.
    let lists = unsafe { lists.items(count as usize) };
    let lists = lists.iter().map(|list| Object::from_raw(*list).ok_or(Refusal::INVALID_NULL_HANDLE));
    let lists: Vec<_> = lists.collect::<Outcome<_>>()?;
    for list in &lists {
        session.check_runnable(queue, *list)?;
    }
    if let Some(fence) = fence
        && session.fence(fence)?.queue != queue.number
    {
        return Err(Refusal::INVALID_SYNCHRONIZATION_OBJECT);
    }
    let mut positions = Vec::new();
    for list in lists {
        positions.extend(session.run_list(queue, list)?);
    }
    if let Some(fence) = fence {
        session.check_fence_unused(fence, "used again")?;
        session.fence(fence)?.work = Some(positions);
    }
    if session.queue(queue)?.synchronous { synchronize(session, queue, u64::MAX) } else { Ok(()) }
}

fn synchronize(session: &mut Session, queue: QueueHandle, timeout: u64) -> Outcome {
    let Queue { device, lanes, .. } = session.queue(queue)?;
    let (device, lanes) = (*device, lanes.clone());
    let ends: Vec<_> = lanes.ends(&session.engine).into_iter().map(Into::into).collect();
    wait(session, &ends, timeout, &[device])
}
