//! Shared by the trials: devices, and copies without the allocator.
#![allow(unsafe_code)]

use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_conformance::unavailable;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, MemoryInfoSource, Place};
use accelerator_vulkan::{Vulkan, VulkanPtr, VulkanStream};
use libtest_mimic::{Completion, Failed, Trial};

use crate::caches::give_back;

pub(crate) type Outcome = Result<(), Failed>;

/// Creates a trial that needs a device. It is ignored if there is none, or fails if `ACCELERATOR_REQUIRE` lists
/// `vulkan`.
pub(crate) fn trial(name: impl Into<String>, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match Vulkan::probe() {
        Ok(_) => run().map(|()| Completion::Completed),
        Err(why) => Ok(Completion::ignored_with(unavailable(Vulkan::KIND.name(), &why.reason)?)),
    })
}

/// Opens the first device again.
pub(crate) fn device() -> Result<&'static Accelerator<Vulkan>, Failed> {
    around(Vulkan::with_capacity(0, None)?)
}

pub(crate) fn around(backend: Vulkan) -> Result<&'static Accelerator<Vulkan>, Failed> {
    Ok(Accelerator::new(backend, 0, AllocatorConfig::default())?)
}

/// Checks that nothing is left after the cache is emptied.
pub(crate) fn check_all_gone(device: &'static Accelerator<Vulkan>) -> Outcome {
    give_back(device)?;
    let info = device.memory_info()?;
    if info.source == MemoryInfoSource::Accounting {
        assert_eq!(info.free, info.total);
    }
    Ok(())
}

pub(crate) fn bytes(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

/// Copies from the device without the allocator and the buffers, and waits.
pub(crate) fn read_raw(backend: &Vulkan, from: VulkanPtr, len: u64, stream: &VulkanStream) -> Result<Vec<u8>, Failed> {
    let mut host = vec![0; len as usize];
    let to = Place::Host(NonNull::from(host.as_mut_slice()).cast());
    // SAFETY: Every caller passes an address with that many bytes. Those of the host stay alive until the
    // synchronization.
    let copied = unsafe { backend.copy(to, Place::Device(from), bytes(len), stream) };
    copied.and_then(|()| backend.synchronize(stream))?;
    Ok(host)
}
