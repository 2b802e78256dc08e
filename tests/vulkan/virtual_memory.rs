//! Memory bound to sparse buffers, on devices that have them.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use accelerator_conformance::unavailable;
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, DevicePtr, DriverErrorKind, MIB, Place, StreamKind, VirtualMemory,
};
use accelerator_vulkan::{Vulkan, VulkanPtr};
use libtest_mimic::{Completion, Failed, Trial};

use crate::kernels::computes_on;
use crate::rig::{Outcome, bytes, read_raw};

/// Few drivers for CPUs have address space for much more.
const CAPACITY: u64 = 64 * MIB;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_virtual_memory("virtual_memory::kernels_use_mapped_memory", kernels),
        with_virtual_memory("virtual_memory::copies_cross_the_pages", crossing),
        with_virtual_memory("virtual_memory::address_space_has_an_end", address_space),
    ]
}

/// Creates a trial that needs virtual memory. It is ignored without, or fails if `ACCELERATOR_REQUIRE` lists
/// `vulkan-virtual-memory`.
fn with_virtual_memory(name: &str, run: fn(Vulkan) -> Outcome) -> Trial {
    Trial::ignorable_test(name, move || {
        let why = match Vulkan::probe() {
            Err(why) => why.reason.to_string(),
            Ok(_) => {
                let backend = Vulkan::with_capacity(0, Some(CAPACITY))?;
                if backend.virtual_memory().is_some() {
                    return run(backend).map(|()| Completion::Completed);
                }
                "the driver has no virtual memory".to_owned()
            }
        };
        Ok(Completion::ignored_with(unavailable("vulkan-virtual-memory", &why)?))
    })
}

fn memory(backend: &Vulkan) -> Result<&dyn VirtualMemory<VulkanPtr>, Failed> {
    Ok(backend.virtual_memory().ok_or("there is no virtual memory")?)
}

fn kernels(_: Vulkan) -> Outcome {
    for settings in ["expandable_segments:True", "policy:compact"] {
        let config = AllocatorConfig::default().updated(settings)?;
        computes_on(Accelerator::new(Vulkan::with_capacity(0, Some(CAPACITY))?, 0, config)?)?;
    }
    Ok(())
}

fn crossing(backend: Vulkan) -> Outcome {
    let memory = memory(&backend)?;
    let stream = backend.stream(StreamKind::Default)?;
    let page = memory.granularity();
    let len = bytes(2 * page.get());
    let at = memory.reserve(len)?;
    let pages = [memory.create(page)?, memory.create(page)?];
    for (place, pages) in [1, 0].into_iter().zip(&pages) {
        // SAFETY: Nothing is mapped there, in a reservation of two pages.
        unsafe { memory.map(at.offset(place * page.get()), pages) }?;
    }
    let data: Vec<u8> = (0..len.get()).map(|i| (i % 251) as u8).collect();
    let from = Place::Host(NonNull::from(data.as_slice()).cast());
    // SAFETY: Both have that many bytes, and live until the stream is synchronized.
    unsafe { backend.copy(Place::Device(at), from, len, &stream) }?;
    assert!(read_raw(&backend, at, len.get(), &stream)? == data);
    for place in [0, 1] {
        // SAFETY: It is one whole mapping, and its work is done.
        unsafe { memory.unmap(at.offset(place * page.get()), page) }?;
    }
    for pages in pages {
        // SAFETY: It is mapped nowhere.
        unsafe { memory.destroy(pages) };
    }
    // SAFETY: Nothing is mapped there.
    unsafe { memory.release(at, len) };
    Ok(())
}

fn address_space(backend: Vulkan) -> Outcome {
    let native = backend.native();
    // SAFETY: The handles are valid as long as the backend lives.
    let properties = unsafe { native.instance.get_physical_device_properties(native.physical) };
    let space = properties.limits.sparse_address_space_size;
    let memory = memory(&backend)?;
    let page = memory.granularity();
    let most = bytes(space / page * page.get());
    let none = (DriverErrorKind::OutOfMemory, "vkCreateBuffer");
    let refused = |len| memory.reserve(len).err().map(|error| (error.kind, error.call));
    assert_eq!(refused(bytes(space + page.get())), Some(none));
    let half = bytes(most.get() / 2 / page * page.get());
    let Ok(first) = memory.reserve(half) else {
        return Ok(()); // buffers cannot be that long
    };
    assert_eq!(refused(most), Some(none));
    // SAFETY: Nothing is mapped there.
    unsafe { memory.release(first, half) };
    let second = memory.reserve(half)?;
    // SAFETY: As above.
    unsafe { memory.release(second, half) };
    Ok(())
}
