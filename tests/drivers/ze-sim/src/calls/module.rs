//! Modules.

use std::ffi::{CString, c_char};

use level_zero_sys::*;

use crate::arguments::{Array, BuildLogHandle, ContextHandle, DeviceHandle, ModuleHandle, Place};
use crate::gate::functions;
use crate::module::Module;
use crate::result::{Outcome, Refusal};
use crate::spirv;
use crate::state::Session;

functions! {
    /// Creates a module from SPIR-V, which is never executed. Its entry points are found by name.
    fn zeModuleCreate(
        context: ContextHandle,
        device: DeviceHandle,
        desc: &ze_module_desc_t,
        module: Place<'_, ze_module_handle_t>,
        build_log: Option<Place<'_, ze_module_build_log_handle_t>>,
    ) [Init] => create;
    /// Destroys a module immediately. It is a violation if any of its kernels are left.
    fn zeModuleDestroy(module: ModuleHandle) [Init] => destroy;
    /// Enumerates the names of its entry points.
    fn zeModuleGetKernelNames(module: ModuleHandle, count: &mut u32, names: Array<*mut *const c_char>)
        [Init] => kernel_names;
    /// Destroys a build log.
    fn zeModuleBuildLogDestroy(build_log: BuildLogHandle) [Init] => destroy_log;
    /// Returns the text of a build log.
    fn zeModuleBuildLogGetString(build_log: BuildLogHandle, bytes: &mut usize, text: Array<*mut c_char>)
        [Init] => log_text;
}

fn create(
    session: &mut Session,
    context: ContextHandle,
    device: DeviceHandle,
    desc: &ze_module_desc_t,
    module: Place<'_, ze_module_handle_t>,
    build_log: Option<Place<'_, ze_module_build_log_handle_t>>,
) -> Outcome {
    let (context, device) = session.context_on(context, device)?;
    session.check_type(desc);
    if desc.pInputModule.is_null() {
        return Err(Refusal::INVALID_NULL_POINTER);
    }
    if desc.inputSize == 0 {
        return Err(Refusal::INVALID_SIZE);
    }
    match desc.format {
        ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV => {}
        // No program has a native binary for a device that does not exist.
        ze_module_format_t::ZE_MODULE_FORMAT_NATIVE => return Err(Refusal::INVALID_NATIVE_BINARY),
        _ => return Err(Refusal::INVALID_ENUMERATION),
    }
    // SAFETY: the caller has that many bytes there.
    let input = unsafe { std::slice::from_raw_parts(desc.pInputModule, desc.inputSize) };
    let found = spirv::entry_points(input);
    if let Some(place) = build_log {
        let handle = session.engine.new_handle();
        session.build_logs.insert(handle, found.as_ref().err().copied().unwrap_or_default().to_owned());
        place.put(BuildLogHandle::new(handle).raw());
    }
    let names = found.map_err(|_| Refusal::MODULE_BUILD_FAILURE)?;
    let names = names.into_iter().filter_map(|name| CString::new(name).ok()).collect();
    let handle = session.engine.new_handle();
    session.modules.insert(handle, Module { context, device, names });
    module.put(ModuleHandle::new(handle).raw());
    Ok(())
}

fn destroy(session: &mut Session, module: ModuleHandle) -> Outcome {
    session.destroy_module(module)
}

fn kernel_names(
    session: &mut Session,
    module: ModuleHandle,
    count: &mut u32,
    names: Array<*mut *const c_char>,
) -> Outcome {
    let own = session.module(module)?.names.iter().map(|name| name.as_ptr());
    // SAFETY: `count` is the length that the caller passed.
    unsafe { names.answer(count, own) };
    Ok(())
}

fn destroy_log(session: &mut Session, build_log: BuildLogHandle) -> Outcome {
    match session.build_logs.remove(&build_log.number) {
        Some(_) => Ok(()),
        None => Err(session.unknown("build log", build_log.number)),
    }
}

fn log_text(session: &mut Session, build_log: BuildLogHandle, bytes: &mut usize, text: Array<*mut c_char>) -> Outcome {
    let Some(own) = session.build_logs.get(&build_log.number) else {
        return Err(session.unknown("build log", build_log.number));
    };
    // SAFETY: `bytes` is the size that the caller passed.
    unsafe { text.answer_text(bytes, own) };
    Ok(())
}
