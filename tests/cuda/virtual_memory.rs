//! Address space and memory apart.
#![allow(unsafe_code)] // methods of `VirtualMemory`
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one proof for the steps of one mapping")]

use std::num::NonZeroU64;

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, GIB, Place, VirtualMemory};
use accelerator_cuda::{Cuda, CudaPtr};
use libtest_mimic::Trial;

use crate::rig::{self, Outcome, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("virtual_memory::one_memory_at_two_addresses", &[], two_addresses),
        trial("virtual_memory::grows_in_place", &[], grows_in_place),
        trial("virtual_memory::out_of_memory", &[("CUDA_SIM_MEMORY", "1G")], out_of_memory),
        trial("virtual_memory::a_failed_map_leaves_nothing", &[], failed_map),
        trial(
            "virtual_memory::not_offered",
            &[("CUDA_SIM_FAIL", "cuMemGetAllocationGranularity@*=801")],
            not_offered,
        ),
    ]
}

fn pager(device: &Cuda) -> &dyn VirtualMemory<CudaPtr> {
    device.virtual_memory().unwrap()
}

/// Writes a byte over the range, or reads what is there.
fn fill(device: &Cuda, at: CudaPtr, value: u8, len: NonZeroU64) {
    let stream = device.stream(accelerator_core::StreamKind::Default).unwrap();
    // SAFETY: The trial says that it is mapped.
    unsafe { device.fill(at, value, len, &stream) }.unwrap();
    device.synchronize(&stream).unwrap();
}

fn first_byte(device: &Cuda, at: CudaPtr) -> u8 {
    let stream = device.stream(accelerator_core::StreamKind::Default).unwrap();
    let mut byte = 0;
    let to = Place::Host(std::ptr::NonNull::from(&mut byte));
    // SAFETY: The trial says that it is mapped; the byte is waited for.
    unsafe { device.copy(to, Place::Device(at), NonZeroU64::MIN, &stream) }.unwrap();
    device.synchronize(&stream).unwrap();
    byte
}

fn two_addresses() -> Outcome {
    let device = Cuda::open(0)?;
    let memory = pager(&device);
    let len = memory.granularity();
    let (one, other, pages) = (memory.reserve(len)?, memory.reserve(len)?, memory.create(len)?);
    // SAFETY: Each range is a reservation of its own, and nothing uses it when it goes.
    unsafe {
        memory.map(one, &pages)?;
        memory.map(other, &pages)?;
        fill(&device, one, 7, len);
        assert_eq!(first_byte(&device, other), 7);
        memory.unmap(one, len)?;
        assert_eq!(first_byte(&device, other), 7);
        memory.unmap(other, len)?;
        memory.destroy(pages);
        memory.release(one, len);
        memory.release(other, len);
    }
    nothing_left()
}

fn grows_in_place() -> Outcome {
    let device = Cuda::open(0)?;
    let memory = pager(&device);
    let step = memory.granularity();
    let whole = step.saturating_mul(NonZeroU64::new(64).unwrap());
    let start = memory.reserve(whole)?;
    let before = device.memory_info()?.free;
    let mut mapped = Vec::new();
    for number in 0..8 {
        let (at, pages) = (start.offset(number * step.get()), memory.create(step)?);
        // SAFETY: The range lies in the reservation, behind what is mapped.
        unsafe { memory.map(at, &pages) }?;
        mapped.push(pages);
        fill(&device, start, number as u8, NonZeroU64::new((number + 1) * step.get()).unwrap());
        assert_eq!(first_byte(&device, at), number as u8);
    }
    assert_eq!(before - device.memory_info()?.free, 8 * step.get());
    // SAFETY: Eight whole mappings, which nothing uses; then their memory and the address space.
    unsafe {
        for (number, pages) in mapped.into_iter().enumerate() {
            memory.unmap(start.offset(number as u64 * step.get()), step)?;
            memory.destroy(pages);
        }
        memory.release(start, whole);
    }
    assert_eq!(device.memory_info()?.free, before);
    nothing_left()
}

fn out_of_memory() -> Outcome {
    let device = Cuda::open(0)?;
    let memory = pager(&device);
    let whole = memory.create(NonZeroU64::new(GIB).unwrap())?;
    let error = memory.create(memory.granularity()).unwrap_err();
    assert_eq!((error.kind, error.call), (DriverErrorKind::OutOfMemory, "cuMemCreate"));
    // SAFETY: It was made here, and is mapped nowhere.
    unsafe { memory.destroy(whole) };
    nothing_left()
}

fn failed_map() -> Outcome {
    let device = Cuda::open(0)?;
    let memory = pager(&device);
    let len = memory.granularity();
    let (at, pages) = (memory.reserve(len)?, memory.create(len)?);
    rig::fail("cuMemSetAccess", 1, 1);
    // SAFETY: The range is a reservation of its own.
    let refused = unsafe { memory.map(at, &pages) }.unwrap_err();
    assert_eq!(refused.call, "cuMemSetAccess");
    // SAFETY: As above: nothing is mapped there.
    unsafe {
        memory.map(at, &pages)?;
        memory.unmap(at, len)?;
        memory.destroy(pages);
        memory.release(at, len);
    }
    nothing_left()
}

fn not_offered() -> Outcome {
    let device = device()?;
    assert!(device.backend().virtual_memory().is_none());
    Ok(())
}

fn nothing_left() -> Outcome {
    assert_eq!((rig::live_reservations(), rig::live_pages(), rig::live_mappings()), (0, 0, 0));
    Ok(())
}
