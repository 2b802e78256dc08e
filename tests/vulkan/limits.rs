//! How much memory a device gives, and the error when that is not enough.
#![allow(unsafe_code)]

use accelerator_core::{
    Accelerator, Backend, DriverError, DriverErrorKind, Error, MIB, MemoryInfoSource, OutOfMemoryCause,
};
use accelerator_vulkan::Vulkan;
use accelerator_vulkan::ash::vk;
use libtest_mimic::Trial;

use crate::rig::{Outcome, around, bytes, check_all_gone, trial};

const CAPACITY: u64 = 64 * MIB;
const FULL: DriverError =
    DriverError::new(DriverErrorKind::OutOfMemory, "vkAllocateMemory", -2, "VK_ERROR_OUT_OF_DEVICE_MEMORY");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("limits::the_device_gives_what_it_has", properties),
        trial("limits::up_to_the_last_byte", budget),
        trial("limits::over_the_largest_allocation", largest_allocation),
        Trial::test("limits::there_is_no_device_1000", no_such_device),
    ]
}

fn properties() -> Outcome {
    let backend = Vulkan::with_capacity(0, None)?;
    let properties = backend.properties();
    let native = backend.native();
    let mut limits = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut limits);
    // SAFETY: The handles are valid as long as the backend lives.
    unsafe { native.instance.get_physical_device_properties2(native.physical, &mut all) };
    let name = all.properties.device_name_as_c_str()?.to_str()?.to_owned();
    // SAFETY: As above.
    let memory = unsafe { native.instance.get_physical_device_memory_properties(native.physical) };
    let heaps = memory.memory_heaps_as_slice().iter();
    let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)).map(|heap| heap.size);
    assert_eq!((&properties.name, Some(properties.total_memory)), (&name, local.max()));
    assert!(properties.largest_allocation <= limits.max_memory_allocation_size);
    assert!(properties.alignment.is_power_of_two() && properties.uuid.is_some());
    Ok(())
}

fn budget() -> Outcome {
    let backend = Vulkan::with_capacity(0, Some(CAPACITY))?;
    assert_eq!(backend.properties().total_memory, CAPACITY);
    let used = |used: u64| -> Outcome {
        let info = backend.memory_info()?;
        assert_eq!(info.total, CAPACITY);
        match info.source {
            MemoryInfoSource::Accounting => assert_eq!(info.free, CAPACITY - used),
            _ => assert!(info.free <= CAPACITY - used),
        }
        Ok(())
    };
    let sizes = [40 * MIB, 1, 24 * MIB - 1].map(bytes);
    let mut live = Vec::new();
    for len in sizes {
        live.push((backend.alloc(len)?, len));
    }
    used(CAPACITY)?;
    for size in [1, CAPACITY, CAPACITY + 1] {
        assert_eq!(backend.alloc(bytes(size)).unwrap_err(), FULL);
    }
    for (ptr, len) in live {
        // SAFETY: It was allocated with this length.
        unsafe { backend.dealloc(ptr, len) };
    }
    used(0)
}

fn largest_allocation() -> Outcome {
    let largest = Vulkan::with_capacity(0, None)?.properties().largest_allocation;
    let device = around(Vulkan::with_capacity(0, Some(largest.saturating_mul(4)))?)?;
    let too_large = DriverError::new(DriverErrorKind::AllocationTooLarge, FULL.call, FULL.code, FULL.name);
    assert_eq!(device.backend().alloc(bytes(largest + 1)).unwrap_err(), too_large);
    assert_eq!(device.backend().alloc_host(bytes(largest + 1)).unwrap_err(), too_large);
    let Err(Error::OutOfMemory(report)) = device.allocate(largest + 1, device.default_stream()) else {
        return Err("it is too large".into());
    };
    assert_eq!(report.cause, OutOfMemoryCause::AllocationTooLarge { largest, driver: too_large });
    let part = "vkAllocateMemory failed: VK_ERROR_OUT_OF_DEVICE_MEMORY (code -2)";
    assert!(report.to_string().contains(part), "`{part}` in: {report}");
    check_all_gone(device)
}

fn no_such_device() -> Outcome {
    let Err(error) = Vulkan::open(1000) else { return Err("there is a device 1000".into()) };
    assert_eq!((error.kind, error.call), (DriverErrorKind::InvalidArgument, "vkEnumeratePhysicalDevices"));
    match (Accelerator::<Vulkan>::open(1000), Vulkan::probe()) {
        (Err(Error::InvalidDevice { kind, index, count }), Ok(there)) => {
            assert_eq!((kind, index, count), (Vulkan::KIND, 1000, there));
        }
        (Err(Error::NoAccelerator { reasons }), Err(why)) => assert_eq!(reasons, format!("vulkan: {why}")),
        (other, probed) => return Err(format!("{other:?}, but the probe returns {probed:?}").into()),
    }
    Ok(())
}
