#![allow(unsafe_code)] // launches

use accelerator_conformance::AnyBackend;
use accelerator_core::{Buffer, Stream};
use accelerator_xpu::Xpu;

use super::{Launched, Native};

/// SPIR-V for OpenCL, which Level Zero takes. Its text is among the examples of the backend.
const SPIRV: &[u8] = include_bytes!("saxpy.spv");
/// Of a group, which may be as large on every Intel GPU.
const THREADS: u32 = 256;

pub(crate) fn saxpy(
    a: f32,
    x: &Buffer<AnyBackend>,
    y: &mut Buffer<AnyBackend>,
    stream: Stream<AnyBackend>,
) -> Launched {
    let Some(Native { backend, stream, x, y, count }) = Native::<Xpu>::of(x, y, stream)? else {
        return Ok(());
    };
    let count = u32::try_from(count)?;
    // SAFETY: The file is valid, as a test sees to.
    let module = unsafe { backend.module(SPIRV, c"") }?;
    let mut kernel = module.kernel(c"saxpy")?;
    let groups = [count.div_ceil(THREADS), 1, 1];
    let [x, y] = [x, y].map(|ptr| ptr.native().expose_provenance().to_ne_bytes());
    let arguments: [&[u8]; 4] = [&count.to_ne_bytes(), &a.to_ne_bytes(), &x, &y];
    // SAFETY: The arguments are those of the kernel, which leaves out threads beyond the count. The memory's use is noted.
    unsafe { kernel.launch_native(stream, groups, [THREADS, 1, 1], &arguments) }?;
    Ok(())
}
