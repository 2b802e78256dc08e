//! Address space and memory apart.
#![allow(unsafe_code)] // methods of `VirtualMemory`
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one proof for the steps of one mapping")]

use std::num::NonZeroU64;

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, GIB, MIB, Place, VirtualMemory};
use accelerator_xpu::{Xpu, XpuPtr};
use libtest_mimic::Trial;

use crate::control::{self, REFUSED};
use crate::rig::{Outcome, device, simulated, unchecked};

// The checks of old loaders refuse addresses of the driver's choice, which the specification permits.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        unchecked("virtual_memory::one_memory_at_two_addresses", &[], two_addresses),
        unchecked("virtual_memory::grows_in_place", &[TOLD], grows_in_place),
        unchecked("virtual_memory::is_accounted_for", &[("ZE_SIM_QUIRKS", "no-sysman")], accounted_for),
        unchecked("virtual_memory::out_of_memory", &[("ZE_SIM_MEMORY", "1G")], out_of_memory),
        unchecked("virtual_memory::a_failed_map_leaves_nothing", &[], failed_map),
        unchecked("virtual_memory::of_an_old_driver", &[TOLD, ("ZE_SIM_API_VERSION", "1.3")], grows_in_place),
        unchecked(
            "virtual_memory::without_pages",
            &[("ZE_SIM_FAIL", "zeVirtualMemQueryPageSize@*=0x78000003")],
            not_offered,
        ),
        unchecked(
            "virtual_memory::without_addresses",
            &[("ZE_SIM_FAIL", "zeVirtualMemReserve@*=0x78000003")],
            not_offered,
        ),
        simulated("virtual_memory::under_checks", &[], under_checks),
    ]
}

/// So that the driver itself tells what is free.
const TOLD: (&str, &str) = ("ZES_ENABLE_SYSMAN", "1");

fn pager(device: &Xpu) -> &dyn VirtualMemory<XpuPtr> {
    device.virtual_memory().unwrap()
}

/// Writes a byte over the range, or reads what is there.
fn fill(device: &Xpu, at: XpuPtr, value: u8, len: NonZeroU64) {
    let stream = device.stream(accelerator_core::StreamKind::Default).unwrap();
    // SAFETY: The trial says that it is mapped.
    unsafe { device.fill(at, value, len, &stream) }.unwrap();
    device.synchronize(&stream).unwrap();
}

fn first_byte(device: &Xpu, at: XpuPtr) -> u8 {
    let stream = device.stream(accelerator_core::StreamKind::Default).unwrap();
    let mut byte = 0;
    let to = Place::Host(std::ptr::NonNull::from(&mut byte));
    // SAFETY: The trial says that it is mapped; the byte is waited for.
    unsafe { device.copy(to, Place::Device(at), NonZeroU64::MIN, &stream) }.unwrap();
    device.synchronize(&stream).unwrap();
    byte
}

fn two_addresses() -> Outcome {
    let device = Xpu::open(0)?;
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
    let device = Xpu::open(0)?;
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

fn accounted_for() -> Outcome {
    let device = Xpu::open(0)?;
    let (memory, before) = (pager(&device), device.memory_info()?.free);
    let pages = memory.create(memory.granularity())?;
    assert_eq!(before - device.memory_info()?.free, memory.granularity().get());
    // SAFETY: Just made, and mapped nowhere.
    unsafe { memory.destroy(pages) };
    assert_eq!(device.memory_info()?.free, before);
    nothing_left()
}

fn out_of_memory() -> Outcome {
    let device = Xpu::open(0)?;
    let memory = pager(&device);
    let whole = memory.create(NonZeroU64::new(GIB).unwrap())?;
    let error = memory.create(memory.granularity()).unwrap_err();
    assert_eq!((error.kind, error.call), (DriverErrorKind::OutOfMemory, "zePhysicalMemCreate"));
    // SAFETY: It was made here, and is mapped nowhere.
    unsafe { memory.destroy(whole) };
    nothing_left()
}

fn failed_map() -> Outcome {
    let device = Xpu::open(0)?;
    let memory = pager(&device);
    let len = memory.granularity();
    let (at, pages) = (memory.reserve(len)?, memory.create(len)?);
    control::fail("zeVirtualMemMap", 1, REFUSED);
    // SAFETY: The range is a reservation of its own.
    let refused = unsafe { memory.map(at, &pages) }.unwrap_err();
    assert_eq!(refused.call, "zeVirtualMemMap");
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
    drop(device.allocate(MIB, device.default_stream())?); // the rest works
    nothing_left()
}

/// Whether it is offered or not is the loader's to say; what is left is nothing either way.
fn under_checks() -> Outcome {
    let device = Xpu::open(0)?;
    let Some(memory) = device.virtual_memory() else { return nothing_left() };
    let at = memory.reserve(memory.granularity())?;
    // SAFETY: Just taken, with nothing mapped there.
    unsafe { memory.release(at, memory.granularity()) };
    nothing_left()
}

fn nothing_left() -> Outcome {
    assert_eq!((control::live_reservations(), control::live_physical(), control::live_mappings()), (0, 0, 0));
    Ok(())
}
