#![allow(unsafe_code)] // calls the driver

use std::ffi::CString;

use accelerator_core::Backend;
use accelerator_cuda::Cuda;
use accelerator_cuda::cudarc::driver::{DriverError, result, sys};

use super::{Launched, Offered, Saxpy};

/// PTX for the oldest architecture that today's drivers accept. The driver compiles it for its GPU.
const PTX: &str = include_str!("saxpy.ptx");
const THREADS: u32 = 256;

pub(super) fn offered() -> Offered<Cuda> {
    Offered::new()
        .about("The first NVIDIA GPU, in the order of `CUDA_VISIBLE_DEVICES`")
        .variables(&["CUDA_VISIBLE_DEVICES"])
        .kernel(saxpy)
}

fn saxpy(Saxpy { backend, stream, a, x, y, count }: Saxpy<Cuda>) -> Launched {
    let count = u32::try_from(count)?;
    backend.cudarc()?.bind_to_thread()?;
    let module = load()?;
    // SAFETY: The module was just loaded, its kernel has these parameters, and both addresses have this many floats.
    let launched = unsafe { launch(module, (count, a, x.native(), y.native()), stream.native()) };
    let done = backend.synchronize(stream); // before the kernel's code is unloaded
    // SAFETY: The module is loaded, and none of its kernels is running: the stream has finished all its work.
    let unloaded = unsafe { result::module::unload(module) };
    launched?;
    done?;
    Ok(unloaded?)
}

fn load() -> Result<sys::CUmodule, Box<dyn std::error::Error + Send + Sync>> {
    let ptx = CString::new(PTX)?;
    // SAFETY: The argument is PTX text that ends with 0.
    Ok(unsafe { result::module::load_data(ptx.as_ptr().cast()) }?)
}

/// # Safety
/// * The module is loaded in the current context, and the stream belongs to that context.
/// * Both addresses are valid for `count` floats until the stream has finished with them, the second for writes.
unsafe fn launch(
    module: sys::CUmodule,
    (mut count, mut a, mut x, mut y): (u32, f32, sys::CUdeviceptr, sys::CUdeviceptr),
    stream: sys::CUstream,
) -> Result<(), DriverError> {
    // SAFETY: The caller guarantees that the module is loaded.
    let kernel = unsafe { result::module::get_function(module, c"saxpy".to_owned()) }?;
    let (blocks, none) = ((count.div_ceil(THREADS), 1, 1), 0);
    let mut parameters = [(&raw mut count).cast(), (&raw mut a).cast(), (&raw mut x).cast(), (&raw mut y).cast()];
    // SAFETY: The kernel has these four parameters, and ignores threads beyond `count`.
    unsafe { result::launch_kernel(kernel, blocks, (THREADS, 1, 1), none, stream, &mut parameters) }
}
