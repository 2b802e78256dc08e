//! Fences.

use level_zero_sys::*;

use crate::arguments::{FenceHandle, Object, Place, QueueHandle};
use crate::fence::Fence;
use crate::gate::functions;
use crate::result::{Outcome, Refusal};
use crate::state::{Handle, Session};
use crate::wait::wait;

functions! {
    /// Creates a fence of a queue, signalled from the start if requested.
    fn zeFenceCreate(queue: QueueHandle, desc: &ze_fence_desc_t, fence: Place<'_, ze_fence_handle_t>)
        [Init] => create;
    /// Destroys a fence immediately.
    fn zeFenceDestroy(fence: FenceHandle) [Init] => destroy;
    /// Waits for a fence.
    fn zeFenceHostSynchronize(fence: FenceHandle, timeout: u64) [Init] => synchronize;
    /// Whether a fence is signalled.
    fn zeFenceQueryStatus(fence: FenceHandle) [Init] => query;
    /// Resets a fence.
    fn zeFenceReset(fence: FenceHandle) [Init] => reset;
}

fn create(
    session: &mut Session,
    queue: QueueHandle,
    desc: &ze_fence_desc_t,
    fence: Place<'_, ze_fence_handle_t>,
) -> Outcome {
    session.queue(queue)?;
    session.check_type(desc);
    let signalled = ze_fence_flag_t::ZE_FENCE_FLAG_SIGNALED.0;
    if desc.flags & !signalled != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    let work = (desc.flags & signalled != 0).then(Vec::new);
    let handle: Handle = session.engine.new_handle();
    session.fences.insert(handle, Fence { queue: queue.number, work });
    fence.put(FenceHandle::new(handle).raw());
    Ok(())
}

fn destroy(session: &mut Session, fence: FenceHandle) -> Outcome {
    session.check_fence_unused(fence, "destroyed")?;
    session.fences.remove(&fence.number);
    Ok(())
}

fn synchronize(session: &mut Session, fence: FenceHandle, timeout: u64) -> Outcome {
    let queue = Object::new(session.fence(fence)?.queue);
    let device = session.queue(queue)?.device;
    match session.fence_conditions(fence)? {
        Some(conditions) => wait(session, &conditions, timeout, &[device]),
        // Nothing was submitted with it, and the specification forbids other threads to use it meanwhile.
        None if timeout < u64::MAX => Err(Refusal::NOT_READY),
        None => {
            session.violation(format!("a thread waits for fence {:#x}, which no work signals", fence.number));
            Err(Refusal::NOT_READY)
        }
    }
}

fn query(session: &mut Session, fence: FenceHandle) -> Outcome {
    synchronize(session, fence, 0)
}

fn reset(session: &mut Session, fence: FenceHandle) -> Outcome {
    session.check_fence_unused(fence, "reset")?;
    session.fence(fence)?.work = None;
    Ok(())
}
