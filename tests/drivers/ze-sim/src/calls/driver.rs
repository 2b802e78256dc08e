//! The driver: starting it, its version and its properties.

use std::ffi::{CStr, c_char};

use level_zero_sys::*;

use crate::arguments::{Array, DriverHandle, Object, Place};
use crate::driver;
use crate::gate::functions;
use crate::result::{Outcome, Refusal};
use crate::state::Session;
use crate::tables::number_of;

/// Flags that select a device type, for both `zeInit` and `zeInitDrivers`.
const GPU: u32 = ze_init_flag_t::ZE_INIT_FLAG_GPU_ONLY.0;
const KNOWN_INIT_FLAGS: u32 = 3;

functions! {
    /// Starts the driver.
    fn zeInit(flags: u32) [Nothing] => init;
    /// Starts the driver, and enumerates the drivers of the requested types.
    fn zeInitDrivers(
        count: &mut u32,
        drivers: Array<*mut ze_driver_handle_t>,
        desc: &mut ze_init_driver_type_desc_t,
    )
        [Nothing] => init_drivers;
    /// Enumerates all drivers: one.
    fn zeDriverGet(count: &mut u32, drivers: Array<*mut ze_driver_handle_t>) [Init] => get;
    /// Returns its version of the API.
    fn zeDriverGetApiVersion(driver: DriverHandle, version: Place<'_, ze_api_version_t>)
        [Init] => api_version;
    /// Returns its UUID and its own version.
    fn zeDriverGetProperties(driver: DriverHandle, properties: &mut ze_driver_properties_t)
        [Init] => properties;
    /// Enumerates its extensions.
    fn zeDriverGetExtensionProperties(
        driver: DriverHandle,
        count: &mut u32,
        extensions: Array<*mut ze_driver_extension_properties_t>,
    ) [Init] => extensions;
    /// Returns the name of the error from the calling thread's last failed call.
    fn zeDriverGetLastErrorDescription(driver: DriverHandle, text: Place<'_, *const c_char>)
        [Init] => last_error;
}

fn init(session: &mut Session, flags: u32) -> Outcome {
    if flags & !KNOWN_INIT_FLAGS != 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    match flags == 0 || flags & GPU != 0 {
        true => driver::start(session),
        false => Err(Refusal::UNINITIALIZED),
    }
}

fn init_drivers(
    session: &mut Session,
    count: &mut u32,
    drivers: Array<*mut ze_driver_handle_t>,
    desc: &mut ze_init_driver_type_desc_t,
) -> Outcome {
    session.check_type(desc);
    if desc.flags == 0 {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    let wanted = desc.flags & ze_init_driver_type_flag_t::ZE_INIT_DRIVER_TYPE_FLAG_GPU.0 != 0;
    if wanted {
        driver::start(session)?;
    }
    let handles = wanted.then(|| DriverHandle::new(session.handle).raw());
    // SAFETY: `count` is the length that the caller passed.
    unsafe { drivers.answer(count, handles.into_iter()) };
    Ok(())
}

fn get(session: &mut Session, count: &mut u32, drivers: Array<*mut ze_driver_handle_t>) -> Outcome {
    let handle: DriverHandle = Object::new(session.handle);
    // SAFETY: `count` is the length that the caller passed.
    unsafe { drivers.answer(count, [handle.raw()].into_iter()) };
    Ok(())
}

fn api_version(session: &mut Session, driver: DriverHandle, version: Place<'_, ze_api_version_t>) -> Outcome {
    session.check_driver(driver)?;
    version.put(number_of(session.settings.version));
    Ok(())
}

fn properties(session: &mut Session, driver: DriverHandle, properties: &mut ze_driver_properties_t) -> Outcome {
    session.check_driver(driver)?;
    session.check_type(properties);
    properties.uuid = ze_driver_uuid_t { id: *b"simulated driver" };
    properties.driverVersion = 1;
    Ok(())
}

fn extensions(
    session: &mut Session,
    driver: DriverHandle,
    count: &mut u32,
    extensions: Array<*mut ze_driver_extension_properties_t>,
) -> Outcome {
    session.check_driver(driver)?;
    let own = session.extensions().into_iter();
    let own = own.map(|(name, version)| ze_driver_extension_properties_t { name: crate::device::text(name), version });
    // SAFETY: `count` is the length that the caller passed.
    unsafe { extensions.answer(count, own) };
    Ok(())
}

fn last_error(session: &mut Session, driver: DriverHandle, text: Place<'_, *const c_char>) -> Outcome {
    session.check_driver(driver)?;
    text.put(description(driver::last_failure()).as_ptr());
    Ok(())
}

/// Describes the errors that a program may act on. The strings must be static.
fn description(failure: Option<Refusal>) -> &'static CStr {
    match failure {
        None => c"",
        Some(Refusal::DEVICE_LOST) => c"simulated: ZE_RESULT_ERROR_DEVICE_LOST",
        Some(Refusal::OUT_OF_DEVICE_MEMORY) => c"simulated: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        Some(Refusal::OUT_OF_HOST_MEMORY) => c"simulated: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY",
        Some(Refusal::UNSUPPORTED_SIZE) => c"simulated: ZE_RESULT_ERROR_UNSUPPORTED_SIZE",
        Some(_) => c"simulated: a call was refused",
    }
}
