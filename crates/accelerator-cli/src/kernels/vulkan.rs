#![allow(unsafe_code)] // launches

use accelerator_conformance::AnyBackend;
use accelerator_core::{Buffer, Stream};
use accelerator_vulkan::Vulkan;

use super::{Launched, Native};

/// SPIR-V for Vulkan. Its source is in the examples of the backend.
const SPIRV: &[u8] = include_bytes!("saxpy-vulkan.spv");
/// The size of a work group in the shader.
const GROUP: u32 = 64;
/// The number of work groups that every device allows.
const GROUPS: u32 = 65_535;

pub(crate) fn saxpy(
    a: f32,
    x: &Buffer<AnyBackend>,
    y: &mut Buffer<AnyBackend>,
    stream: Stream<AnyBackend>,
) -> Launched {
    let Some(Native { backend, stream, x, y, count }) = Native::<Vulkan>::of(x, y, stream)? else {
        return Ok(());
    };
    let (size, count) = (4 * count as u64, u32::try_from(count)?);
    // SAFETY: The file is valid, which a test checks. The shader has two buffers, and two values of 4 bytes.
    let kernel = unsafe { backend.kernel(SPIRV, c"main", 2, 8) }?;
    let values = [a.to_ne_bytes(), count.to_ne_bytes()].concat();
    let groups = [count.div_ceil(GROUP).min(GROUPS), 1, 1];
    // SAFETY: The arguments match the shader, which ignores elements beyond the count. The use of the memory is
    // recorded.
    unsafe { kernel.launch_native(stream, groups, &[(x, size), (y, size)], &values) }?;
    Ok(())
}
