#![allow(unsafe_code)] // launches

use accelerator_core::Backend;
use accelerator_vulkan::Vulkan;

use super::{Launched, Offered, Saxpy};

/// SPIR-V for Vulkan. Its source is in the examples of the backend.
const SPIRV: &[u8] = include_bytes!("saxpy-vulkan.spv");
/// The size of a work group in the shader.
const GROUP: u32 = 64;
/// The number of work groups that every device allows.
const GROUPS: u32 = 65_535;

pub(super) fn offered() -> Offered<Vulkan> {
    Offered::new()
        .about("The first Vulkan device, in the order of `ACCELERATOR_VULKAN_DEVICES`")
        .variables(&["ACCELERATOR_VULKAN_DEVICES", "ACCELERATOR_VULKAN_CAPACITY", "ACCELERATOR_VULKAN_QUEUES"])
        .open(|capacity| match capacity {
            Some(_) => Vulkan::with_capacity(0, capacity),
            None => Vulkan::open(0), // the environment may set a capacity
        })
        .kernel(saxpy)
}

fn saxpy(Saxpy { backend, stream, a, x, y, count }: Saxpy<Vulkan>) -> Launched {
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
