//! Modules and kernels.

use std::ffi::{CStr, c_char};

use sim_engine::out::Out;
use sim_engine::{Kernel, Launch, Work};

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::ptx;
use crate::state::{Handle, Session};

/// The maximum number of threads of a block.
const MOST_THREADS: u64 = 1024;
/// The maximum shared memory of a block.
const MOST_SHARED: u32 = 48 << 10;

exports! {
    /// Loads a module from PTX source. Other images are refused.
    fn cuModuleLoadData(module: Out<'_, Handle>, image: *const c_char) [NoCapture] => raw load_data;
    /// Loads a module from a file of PTX source.
    fn cuModuleLoad(module: Out<'_, Handle>, path: *const c_char) [NoCapture] => raw load_file;
    /// Returns one of its kernels, if the driver knows it by name: `saxpy`, `scale` or `spin`.
    fn cuModuleGetFunction(function: Out<'_, Handle>, module: Handle, name: *const c_char)
        [Context] => raw get_function;
    /// Unloads a module.
    fn cuModuleUnload(module: Handle) [NoCapture] => safe unload;
    /// Returns an attribute of a kernel.
    fn cuFuncGetAttribute(value: Out<'_, i32>, attribute: i32, function: Handle)
        [Context] => safe function_attribute;
    /// Launches a kernel. Each thread computes one element, up to the number in the arguments.
    fn cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, arguments: *const *const u8, extra: *const *const u8,
    ) [Context] => raw launch;
}

/// # Safety
/// * `image` is null, or a zero-terminated string.
unsafe fn load_data(driver: &mut Session, module: Out<'_, Handle>, image: *const c_char) -> Outcome {
    let module = required(module)?;
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a C string.
    let text = unsafe { CStr::from_ptr(image) };
    module.write(load(driver, text.to_bytes())?);
    Ok(())
}

/// # Safety
/// * `path` is null, or a zero-terminated string.
unsafe fn load_file(driver: &mut Session, module: Out<'_, Handle>, path: *const c_char) -> Outcome {
    let module = required(module)?;
    if path.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a C string.
    let path = unsafe { CStr::from_ptr(path) };
    let text = std::fs::read(path.to_string_lossy().as_ref()).or(Err(Code::FILE_NOT_FOUND))?;
    module.write(load(driver, &text)?);
    Ok(())
}

fn load(driver: &mut Session, image: &[u8]) -> Outcome<Handle> {
    let text = std::str::from_utf8(image).ok().filter(|text| text.contains(".version"));
    let kernels = ptx::kernels_in(text.ok_or(Code::INVALID_IMAGE)?);
    let handle = driver.engine.new_handle();
    driver.modules.insert(handle, kernels);
    Ok(handle)
}

/// # Safety
/// * `name` is null, or a zero-terminated string.
unsafe fn get_function(
    driver: &mut Session,
    function: Out<'_, Handle>,
    module: Handle,
    name: *const c_char,
) -> Outcome {
    let function = required(function)?;
    let kernels = driver.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
    if name.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let kernel = kernels.iter().copied().find(|kernel| kernel.name().as_bytes() == name);
    let kernel = kernel.ok_or(Code::NOT_FOUND)?;
    let handle = driver.engine.new_handle();
    driver.functions.insert(handle, (module, kernel));
    function.write(handle);
    Ok(())
}

fn unload(driver: &mut Session, module: Handle) -> Outcome {
    driver.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
    driver.functions.retain(|_, (own, _)| *own != module);
    Ok(())
}

fn function_attribute(driver: &mut Session, value: Out<'_, i32>, attribute: i32, function: Handle) -> Outcome {
    let value = required(value)?;
    driver.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
    let (major, minor) = driver.settings.capability;
    value.write(match attribute {
        0 => MOST_THREADS as i32,    // MAX_THREADS_PER_BLOCK
        1..=3 | 7 => 0,              // sizes in shared, constant and local memory; CACHE_MODE_CA
        4 => 16,                     // NUM_REGS
        5 | 6 => 10 * major + minor, // PTX_VERSION, BINARY_VERSION
        8 => MOST_SHARED as i32,     // MAX_DYNAMIC_SHARED_SIZE_BYTES
        9..=15 => 0,
        _ => return Err(Code::INVALID_VALUE),
    });
    Ok(())
}

/// # Safety
/// * `arguments` is null, or points to one pointer for each of the kernel's parameters, which points to its argument.
#[allow(clippy::too_many_arguments, reason = "the driver API has this signature")]
unsafe fn launch(
    driver: &mut Session,
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Handle,
    arguments: *const *const u8,
    extra: *const *const u8,
) -> Outcome {
    let (_, kernel) = *driver.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
    let stream = driver.stream(stream)?;
    if driver.state_of(stream)?.context != driver.current()? {
        return Err(Code::INVALID_HANDLE);
    }
    if !extra.is_null() {
        return Err(Code::NOT_SUPPORTED);
    }
    let product = |sizes: [u32; 3]| sizes.into_iter().map(u64::from).product::<u64>();
    let (blocks, threads) = (product([grid_x, grid_y, grid_z]), product([block_x, block_y, block_z]));
    if blocks == 0 || threads == 0 || threads > MOST_THREADS || shared > MOST_SHARED {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises the same.
    let arguments = unsafe { take_arguments(kernel, arguments) }?;
    let launch = Launch { kernel, threads: blocks.saturating_mul(threads), arguments };
    driver.submit(stream, Work::Kernel(launch)).map(drop)
}

/// Returns the bits of a kernel's arguments, copied during the call.
///
/// # Safety
/// * As [`launch`].
unsafe fn take_arguments(kernel: Kernel, arguments: *const *const u8) -> Outcome<Vec<u64>> {
    let mut taken = Vec::new();
    for (index, width) in kernel.parameters().iter().enumerate() {
        if arguments.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises a pointer for each parameter.
        let place = unsafe { arguments.wrapping_add(index).read() };
        if place.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut bits = [0; 8];
        // SAFETY: the place holds an argument of this width, at most 8 bytes.
        unsafe { bits.as_mut_ptr().copy_from(place, *width) };
        taken.push(u64::from_le_bytes(bits));
    }
    Ok(taken)
}
