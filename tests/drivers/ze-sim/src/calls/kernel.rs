//! Kernels, except their launches.

use std::ffi::{CStr, c_char, c_void};

use level_zero_sys::*;
use sim_engine::Kernel;

use crate::arguments::{Array, KernelHandle, ModuleHandle, Place};
use crate::gate::functions;
use crate::module::{KernelObject, MAX_GROUP};
use crate::result::{Outcome, Refusal};
use crate::state::Session;

functions! {
    /// Creates a kernel that the driver knows by name.
    fn zeKernelCreate(module: ModuleHandle, desc: &ze_kernel_desc_t, kernel: Place<'_, ze_kernel_handle_t>)
        [Init] => create;
    /// Destroys a kernel immediately. It is a violation if a launch of it has not happened.
    fn zeKernelDestroy(kernel: KernelHandle) [Init] => destroy;
    /// Sets the number of threads of a group.
    fn zeKernelSetGroupSize(kernel: KernelHandle, x: u32, y: u32, z: u32) [Init] => set_group;
    /// Suggests a group size for a number of threads.
    fn zeKernelSuggestGroupSize(
        kernel: KernelHandle,
        x: u32,
        y: u32,
        z: u32,
        group_x: Place<'_, u32>,
        group_y: Place<'_, u32>,
        group_z: Place<'_, u32>,
    ) [Init] => suggest_group;
    /// Sets an argument. Its value is copied.
    fn zeKernelSetArgumentValue(kernel: KernelHandle, index: u32, bytes: usize, value: Array<*const c_void>)
        [Init] => set_argument;
    /// Returns a kernel's name.
    fn zeKernelGetName(kernel: KernelHandle, bytes: &mut usize, name: Array<*mut c_char>) [Init] => name;
}

fn create(
    session: &mut Session,
    module: ModuleHandle,
    desc: &ze_kernel_desc_t,
    kernel: Place<'_, ze_kernel_handle_t>,
) -> Outcome {
    let names = session.module(module)?.names.clone();
    session.check_type(desc);
    let known_flags = 3;
    if desc.flags > known_flags {
        return Err(Refusal::INVALID_ENUMERATION);
    }
    if desc.pKernelName.is_null() {
        return Err(Refusal::INVALID_NULL_POINTER);
    }
    // SAFETY: The pointer is not null, so it is the caller's zero-terminated string.
    let wanted = unsafe { CStr::from_ptr(desc.pKernelName) };
    let found = names.iter().find(|name| name.as_c_str() == wanted);
    let found = found.and_then(|name| Kernel::named(&name.to_string_lossy()));
    let found = found.ok_or(Refusal::INVALID_KERNEL_NAME)?;
    let arguments = vec![None; found.parameters().len()];
    let handle = session.engine.new_handle();
    let own = KernelObject { module: module.number, kernel: found, arguments, group: [1; 3] };
    session.kernels.insert(handle, own);
    kernel.put(KernelHandle::new(handle).raw());
    Ok(())
}

fn destroy(session: &mut Session, kernel: KernelHandle) -> Outcome {
    session.destroy_kernel(kernel)
}

fn set_group(session: &mut Session, kernel: KernelHandle, x: u32, y: u32, z: u32) -> Outcome {
    let own = session.kernel(kernel)?;
    let threads = [x, y, z].iter().fold(1, |all: u64, size| all.saturating_mul(u64::from(*size)));
    if threads == 0 || threads > u64::from(MAX_GROUP) {
        return Err(Refusal::INVALID_GROUP_SIZE_DIMENSION);
    }
    own.group = [x, y, z];
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "those of the API")]
fn suggest_group(
    session: &mut Session,
    kernel: KernelHandle,
    x: u32,
    _: u32,
    _: u32,
    group_x: Place<'_, u32>,
    group_y: Place<'_, u32>,
    group_z: Place<'_, u32>,
) -> Outcome {
    session.kernel(kernel)?;
    // The largest size that divides the threads evenly, so that no extra threads run.
    let divides = |size: &u32| x.is_multiple_of(*size);
    group_x.put((1..=MAX_GROUP.min(x.max(1))).rev().find(divides).unwrap_or(1));
    group_y.put(1);
    group_z.put(1);
    Ok(())
}

fn set_argument(
    session: &mut Session,
    kernel: KernelHandle,
    index: u32,
    bytes: usize,
    value: Array<*const c_void>,
) -> Outcome {
    let own = session.kernel(kernel)?;
    let index = index as usize;
    let parameters = own.kernel.parameters();
    let wanted = parameters.get(index).copied().ok_or(Refusal::INVALID_KERNEL_ARGUMENT_INDEX)?;
    if bytes != wanted {
        return Err(Refusal::INVALID_KERNEL_ARGUMENT_SIZE);
    }
    // SAFETY: The pointer is null, which means zeroes, or points to as many bytes as the caller states.
    let given = unsafe { value.bytes(bytes) };
    let mut bits = [0; 8];
    bits[..given.len()].copy_from_slice(given);
    own.arguments[index] = Some(u64::from_le_bytes(bits));
    Ok(())
}

fn name(session: &mut Session, kernel: KernelHandle, bytes: &mut usize, name: Array<*mut c_char>) -> Outcome {
    let own = session.kernel(kernel)?.kernel.name();
    // SAFETY: `bytes` is the size that the caller passed.
    unsafe { name.answer_text(bytes, own) };
    Ok(())
}
