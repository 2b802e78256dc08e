//! Address space separate from memory.
#![allow(unsafe_code)] // calls methods of `VirtualMemory`

use accelerator_core::{Backend, MIB};
use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::control::{self, REFUSED};
use crate::programs::simulated::check_nothing_mapped;
use crate::programs::virtual_memory::{self, pager};
use crate::rig::{Outcome, device, simulated, unchecked};

// Old loaders' checks refuse to let the driver choose addresses, which the specification permits.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        unchecked("virtual_memory::one_memory_at_two_addresses", &[], virtual_memory::two_addresses::<Xpu>),
        unchecked("virtual_memory::maps_twice", &[TOLD], || asked_once(true)),
        unchecked("virtual_memory::a_second_mapping_is_refused", ONE_MAPPING, || asked_once(false)),
        unchecked("virtual_memory::a_second_mapping_takes_the_memory", MOVING_MAPPING, || asked_once(false)),
        unchecked("virtual_memory::no_attempt_leaves_anything", &[], no_attempt_leaves_anything),
        unchecked("virtual_memory::compact", &[TIGHT], virtual_memory::compact::<Xpu>),
        unchecked("virtual_memory::compact_with_one_mapping", TIGHT_ONE_MAPPING, virtual_memory::compact::<Xpu>),
        unchecked(
            "virtual_memory::compact_with_a_moving_mapping",
            TIGHT_MOVING_MAPPING,
            virtual_memory::compact::<Xpu>,
        ),
        unchecked("virtual_memory::grows_in_place", &[TOLD], virtual_memory::grows_in_place::<Xpu>),
        unchecked("virtual_memory::sleep", &[], virtual_memory::sleep::<Xpu>),
        unchecked("virtual_memory::is_accounted_for", &[("ZE_SIM_QUIRKS", "no-sysman")], accounted_for),
        unchecked("virtual_memory::out_of_memory", &[("ZE_SIM_MEMORY", "1G")], || {
            virtual_memory::out_of_memory::<Xpu>("zePhysicalMemCreate")
        }),
        unchecked("virtual_memory::a_failed_map_leaves_nothing", &[], || {
            virtual_memory::failed_map::<Xpu>("zeVirtualMemMap")
        }),
        unchecked("virtual_memory::expandable_segments::seed_1", SEED_1, expandable_segments),
        unchecked("virtual_memory::expandable_segments::seed_2", SEED_2, expandable_segments),
        unchecked(
            "virtual_memory::of_an_old_driver",
            &[TOLD, ("ZE_SIM_API_VERSION", "1.3")],
            virtual_memory::grows_in_place::<Xpu>,
        ),
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

/// Makes the driver itself report the free memory.
const TOLD: (&str, &str) = ("ZES_ENABLE_SYSMAN", "1");

const ONE_MAPPING: &[(&str, &str)] = &[TOLD, ("ZE_SIM_QUIRKS", "one-mapping")];
const MOVING_MAPPING: &[(&str, &str)] = &[TOLD, ("ZE_SIM_QUIRKS", "moving-mapping")];

const TIGHT: (&str, &str) = ("ZE_SIM_MEMORY", "176M");
const TIGHT_ONE_MAPPING: &[(&str, &str)] = &[TIGHT, ("ZE_SIM_QUIRKS", "one-mapping")];
const TIGHT_MOVING_MAPPING: &[(&str, &str)] = &[TIGHT, ("ZE_SIM_QUIRKS", "moving-mapping")];

const SEED_1: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "2")];

fn expandable_segments() -> Outcome {
    virtual_memory::expandable_segments::<Xpu>()?;
    assert!(matches!((control::calls_of("zeMemAllocDevice"), control::calls_of("zePhysicalMemCreate")), (0, 4..)));
    Ok(())
}

/// The capability is determined by an attempt when it is first queried, and only once.
fn asked_once(expected: bool) -> Outcome {
    let device = Xpu::open(0)?;
    let (memory, free) = (pager(&device), device.memory_info()?.free);
    assert_eq!(control::calls_of("zeVirtualMemMap"), 0);
    for _ in 0..3 {
        assert_eq!(memory.maps_twice(), expected);
        assert_eq!(control::calls_of("zeVirtualMemMap"), 2);
    }
    assert_eq!(device.memory_info()?.free, free);
    check_nothing_mapped::<Xpu>()
}

/// If any call of the attempt fails, the answer is no, and nothing is left.
fn no_attempt_leaves_anything() -> Outcome {
    assert!(pager(&Xpu::open(0)?).maps_twice());
    for call in 1..100 {
        let device = Xpu::open(0)?;
        control::fail_at(call, REFUSED);
        let answer = pager(&device).maps_twice();
        let was_made = control::clear_faults() == 0;
        check_nothing_mapped::<Xpu>()?;
        drop(device);
        if !was_made {
            assert!(answer && call > 10, "the attempt makes only {call} calls");
            return Ok(());
        }
        // Failed release calls are retried; any other failure decides the answer.
        assert!(!answer || call > 8, "call {call} of the attempt was not needed");
    }
    Err("the attempt does not end".into())
}

fn accounted_for() -> Outcome {
    let device = Xpu::open(0)?;
    let (memory, before) = (pager(&device), device.memory_info()?.free);
    let pages = memory.create(memory.granularity())?;
    assert_eq!(before - device.memory_info()?.free, memory.granularity().get());
    // SAFETY: Just created, and not mapped.
    unsafe { memory.destroy(pages) };
    assert_eq!(device.memory_info()?.free, before);
    check_nothing_mapped::<Xpu>()
}

fn not_offered() -> Outcome {
    let device = device()?;
    assert!(device.backend().virtual_memory().is_none());
    drop(device.allocate(MIB, device.default_stream())?); // everything else works
    check_nothing_mapped::<Xpu>()
}

/// The loader decides whether virtual memory is available. Either way, nothing is left.
fn under_checks() -> Outcome {
    let device = Xpu::open(0)?;
    let Some(memory) = device.virtual_memory() else { return check_nothing_mapped::<Xpu>() };
    let at = memory.reserve(memory.granularity())?;
    // SAFETY: Just reserved, with nothing mapped there.
    unsafe { memory.release(at, memory.granularity()) };
    check_nothing_mapped::<Xpu>()
}
