//! The facade on Vulkan devices, where there are any.

use accelerator::vulkan::Vulkan;
use accelerator::{
    Buffer, Error, MIB, OutOfMemoryCause, PinnedBuffer, current_accelerator, device_count, set_accelerator, typed,
};

use crate::process::{HOST, OPENCL, VULKAN, processes};

processes! { on_vulkan:
    fn vulkan_is_preferred_to_the_host_but_not_to_opencl() {
        let backends = accelerator::backends();
        let place = |kind| backends.iter().position(|backend| backend.kind == kind);
        assert!(place(OPENCL) < place(VULKAN) && place(VULKAN) < place(HOST));
        assert_eq!(current_accelerator(), Some(VULKAN));
        let vulkan = backends.into_iter().find(|backend| backend.kind == VULKAN);
        assert_eq!(vulkan.unwrap().devices, Ok(device_count()));
        set_accelerator("host")?;
        assert_eq!(current_accelerator(), Some(HOST));
    }

    fn bytes_go_there_and_come_back(ACCELERATOR_BACKEND = "vulkan") {
        let mut numbers: Vec<u32> = (0..1_000_000).collect();
        let source = Buffer::from_slice(&numbers, None)?;
        let mut copy = Buffer::allocate(source.len(), None)?;
        copy.copy_from(&source)?;
        copy.slice_mut::<u32>()?.write(999_998, &[7, 8])?;
        numbers[999_998..].copy_from_slice(&[7, 8]);
        assert_eq!(copy.to_vec::<u32>()?, numbers);
        let pinned = PinnedBuffer::from_slice(&numbers, None)?;
        assert_eq!(Buffer::from_slice(pinned.slice::<u32>()?, None)?.to_vec::<u32>()?, numbers);
    }

    fn memory_ends_at_the_capacity(ACCELERATOR_BACKEND = "vulkan", ACCELERATOR_VULKAN_CAPACITY = "64MiB") {
        assert_eq!(typed::<Vulkan>(0)?.properties().total_memory, 64 * MIB);
        let Err(Error::OutOfMemory(report)) = Buffer::allocate(65 * MIB, None) else {
            unreachable!("it is more than there is")
        };
        assert_eq!((report.device.kind, report.cause), (VULKAN, OutOfMemoryCause::Device));
    }
}
