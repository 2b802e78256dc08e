//! Events and their pools.

use level_zero_sys::*;
use sim_engine::{Condition, Times};

use crate::arguments::{Array, ContextHandle, EventHandle, Object, Place, PoolHandle};
use crate::event::Pool;
use crate::gate::functions;
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::structures::find;
use crate::wait::wait;

functions! {
    /// Creates a pool of events for some or all devices of a context.
    fn zeEventPoolCreate(
        context: ContextHandle,
        desc: &ze_event_pool_desc_t,
        count: u32,
        devices: Array<*mut ze_device_handle_t>,
        pool: Place<'_, ze_event_pool_handle_t>,
    ) [Init] => create_pool;
    /// Destroys a pool immediately. It is a violation if any of its events are left.
    fn zeEventPoolDestroy(pool: PoolHandle) [Init] => destroy_pool;
    /// Creates an event at an index of a pool.
    fn zeEventCreate(pool: PoolHandle, desc: &ze_event_desc_t, event: Place<'_, ze_event_handle_t>)
        [Init] => create;
    /// Destroys an event immediately. It is a violation if a submitted command still uses it.
    fn zeEventDestroy(event: EventHandle) [Init] => destroy;
    /// Signals an event.
    fn zeEventHostSignal(event: EventHandle) [Init] => signal;
    /// Waits for an event.
    fn zeEventHostSynchronize(event: EventHandle, timeout: u64) [Init] => synchronize;
    /// Whether an event is signalled.
    fn zeEventQueryStatus(event: EventHandle) [Init] => query;
    /// Resets an event. It is a violation if a submitted command still uses it.
    fn zeEventHostReset(event: EventHandle) [Init] => reset;
    /// Returns when the command that signalled the event ran.
    fn zeEventQueryKernelTimestamp(event: EventHandle, times: Place<'_, ze_kernel_timestamp_result_t>)
        [Init] => timestamps;
}

const HOST_VISIBLE: u32 = ze_event_pool_flag_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE.0;
const TIMESTAMPS: u32 = ze_event_pool_flag_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP.0
    | ze_event_pool_flag_t::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP.0;
const KNOWN_FLAGS: u32 = 0xf;
const KNOWN_SCOPES: u32 = 7;

fn create_pool(
    session: &mut Session,
    context: ContextHandle,
    desc: &ze_event_pool_desc_t,
    count: u32,
    devices: Array<*mut ze_device_handle_t>,
    pool: Place<'_, ze_event_pool_handle_t>,
) -> Outcome {
    let context = session.context(context)?;
    session.check_type(desc);
    if desc.flags & !KNOWN_FLAGS != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    // SAFETY: the caller's descriptor starts a valid chain.
    if unsafe { find::<ze_event_pool_counter_based_exp_desc_t>(desc.pNext) }.is_some() {
        return Err(Refusal::UNSUPPORTED_FEATURE);
    }
    if desc.count == 0 || devices.is_null() && count > 0 {
        return Err(Refusal::INVALID_SIZE);
    }
    // SAFETY: `count` is the length that the caller passed.
    let named = unsafe { devices.items(count as usize) };
    let devices = session.devices_among(context, named)?;
    let handle = session.engine.new_handle();
    let own = Pool {
        context,
        devices,
        count: desc.count,
        host_visible: desc.flags & HOST_VISIBLE != 0,
        timestamps: desc.flags & TIMESTAMPS != 0,
        used: Default::default(),
    };
    session.pools.insert(handle, own);
    pool.put(PoolHandle::new(handle).raw());
    Ok(())
}

fn destroy_pool(session: &mut Session, pool: PoolHandle) -> Outcome {
    let left = session.pool(pool)?.used.len();
    if left > 0 {
        session.violation(format!("event pool {:#x} is destroyed with {left} events left", pool.number));
    }
    session.pools.remove(&pool.number);
    Ok(())
}

fn create(
    session: &mut Session,
    pool: PoolHandle,
    desc: &ze_event_desc_t,
    event: Place<'_, ze_event_handle_t>,
) -> Outcome {
    session.check_type(desc);
    if (desc.signal | desc.wait) & !KNOWN_SCOPES != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    event.put(session.make_event(pool, desc.index)?.raw());
    Ok(())
}

fn destroy(session: &mut Session, event: EventHandle) -> Outcome {
    session.destroy_event(event.number)
}

fn signal(session: &mut Session, event: EventHandle) -> Outcome {
    let signal = session.host_signal(event)?;
    session.check_signalling(event.number, signal);
    let now = session.engine.clock;
    session.engine.signals.set(signal, Times { began: now, ended: now });
    session.submitted += 1;
    Ok(())
}

fn synchronize(session: &mut Session, event: EventHandle, timeout: u64) -> Outcome {
    let signal = session.host_signal(event)?;
    let pool = session.events.get(&event.number).map(|event| Object::new(event.pool));
    let pool = pool.ok_or(Refusal::INVALID_ARGUMENT)?;
    let devices = session.pool(pool)?.devices.clone();
    wait(session, &[Condition::Set(signal)], timeout, &devices)
}

fn query(session: &mut Session, event: EventHandle) -> Outcome {
    synchronize(session, event, 0)
}

fn reset(session: &mut Session, event: EventHandle) -> Outcome {
    let signal = session.host_signal(event)?;
    session.check_unused(event.number, signal, "reset");
    session.engine.signals.reset(signal);
    Ok(())
}

fn timestamps(session: &mut Session, event: EventHandle, times: Place<'_, ze_kernel_timestamp_result_t>) -> Outcome {
    times.put(session.timestamps(event)?);
    Ok(())
}
