#![allow(unsafe_code)] // launches

use accelerator_core::{Buffer, Stream};
use accelerator_xpu::{Argument, Xpu};

use super::Launched;

/// SPIR-V for OpenCL, which Level Zero takes. Its text is among the examples of the backend.
const SPIRV: &[u8] = include_bytes!("saxpy.spv");
/// Of a group, which may be as large on every Intel GPU.
const THREADS: u32 = 256;

pub(crate) fn saxpy(a: f32, x: &Buffer<Xpu>, y: &mut Buffer<Xpu>, stream: Stream<Xpu>) -> Launched {
    let count = u32::try_from(y.slice::<f32>()?.len())?;
    // SAFETY: The file is valid, as a test sees to.
    let module = unsafe { stream.backend().module(SPIRV, c"") }?;
    let mut kernel = module.kernel(c"saxpy")?;
    let groups = [count.div_ceil(THREADS), 1, 1];
    let arguments = [Argument::value(&count), Argument::value(&a), Argument::Buffer(x), Argument::Buffer(y)];
    // SAFETY: The arguments are those of the kernel, which leaves out threads beyond the count.
    unsafe { kernel.launch(stream, groups, [THREADS, 1, 1], &arguments) }?;
    Ok(())
}
