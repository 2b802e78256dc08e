//! Contexts.

use level_zero_sys::*;

use crate::arguments::{Array, ContextHandle, DriverHandle, Place};
use crate::gate::functions;
use crate::result::{Outcome, Refusal};
use crate::state::Session;

functions! {
    /// Creates a context with all devices.
    fn zeContextCreate(
        driver: DriverHandle,
        desc: &ze_context_desc_t,
        context: Place<'_, ze_context_handle_t>,
    )
        [Init] => create;
    /// Creates a context with some or all devices.
    fn zeContextCreateEx(
        driver: DriverHandle,
        desc: &ze_context_desc_t,
        count: u32,
        devices: Array<*mut ze_device_handle_t>,
        context: Place<'_, ze_context_handle_t>,
    ) [Init] => create_with;
    /// Destroys a context immediately. It is a violation if any of its objects are left.
    fn zeContextDestroy(context: ContextHandle) [Init] => destroy;
    /// Whether none of its devices is lost.
    fn zeContextGetStatus(context: ContextHandle) [Init] => status;
}

/// `ZE_CONTEXT_FLAG_TBD`
const KNOWN_FLAGS: u32 = 1;

fn create(
    session: &mut Session,
    driver: DriverHandle,
    desc: &ze_context_desc_t,
    context: Place<'_, ze_context_handle_t>,
) -> Outcome {
    make(session, driver, desc, &[], context)
}

fn create_with(
    session: &mut Session,
    driver: DriverHandle,
    desc: &ze_context_desc_t,
    count: u32,
    devices: Array<*mut ze_device_handle_t>,
    context: Place<'_, ze_context_handle_t>,
) -> Outcome {
    if devices.is_null() && count > 0 {
        return Err(Refusal::INVALID_SIZE);
    }
    // SAFETY: `count` is the length that the caller passed.
    let devices = unsafe { devices.items(count as usize) };
    make(session, driver, desc, devices, context)
}

fn make(
    session: &mut Session,
    driver: DriverHandle,
    desc: &ze_context_desc_t,
    devices: &[ze_device_handle_t],
    context: Place<'_, ze_context_handle_t>,
) -> Outcome {
    session.check_driver(driver)?;
    session.check_type(desc);
    if desc.flags & !KNOWN_FLAGS != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    let all: Vec<usize> = (0..session.devices.len()).collect();
    let made = session.make_context(all);
    if !devices.is_empty() {
        let chosen = session.devices_among(made.number, devices);
        session.contexts.remove(&made.number);
        let chosen = chosen?;
        context.put(session.make_context(chosen).raw());
        return Ok(());
    }
    context.put(made.raw());
    Ok(())
}

fn destroy(session: &mut Session, context: ContextHandle) -> Outcome {
    let context = session.context(context)?;
    session.destroy_context(context);
    Ok(())
}

fn status(session: &mut Session, context: ContextHandle) -> Outcome {
    let context = session.context(context)?;
    let devices = session.devices_among(context, &[])?;
    let lost = devices.into_iter().any(|device| session.is_lost(device));
    if lost { Err(Refusal::DEVICE_LOST) } else { Ok(()) }
}
