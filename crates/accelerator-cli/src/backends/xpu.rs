#![allow(unsafe_code)] // launches

use accelerator_xpu::Xpu;

use super::{Launched, Offered, Saxpy};

/// SPIR-V for OpenCL, which Level Zero accepts. Its source is in the examples of the backend.
const SPIRV: &[u8] = include_bytes!("saxpy.spv");
/// The number of threads in a group. Every Intel GPU supports groups of this size.
const THREADS: u32 = 256;

pub(super) fn offered() -> Offered<Xpu> {
    Offered::new()
        .about("The first Intel GPU, in the loader's order")
        // The last one runs Intel's driver without a GPU.
        .variables(&["ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "SetCommandStreamReceiver"])
        .kernel(saxpy)
}

fn saxpy(Saxpy { backend, stream, a, x, y, count }: Saxpy<Xpu>) -> Launched {
    let count = u32::try_from(count)?;
    // SAFETY: The file is valid, which a test checks.
    let module = unsafe { backend.module(SPIRV, c"") }?;
    let mut kernel = module.kernel(c"saxpy")?;
    let groups = [count.div_ceil(THREADS), 1, 1];
    let [x, y] = [x, y].map(|ptr| ptr.native().expose_provenance().to_ne_bytes());
    let arguments: [&[u8]; 4] = [&count.to_ne_bytes(), &a.to_ne_bytes(), &x, &y];
    // SAFETY: The arguments match the kernel, which ignores threads beyond the count. The use of the memory is
    // recorded.
    unsafe { kernel.launch_native(stream, groups, [THREADS, 1, 1], &arguments) }?;
    Ok(())
}
