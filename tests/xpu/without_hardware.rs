//! Intel's own driver for absent products. It accepts commands but executes nothing, so everything except data and
//! completion is tested.
#![allow(unsafe_code)] // allocates from the backend directly

use std::num::NonZeroU64;

use accelerator_conformance::{Capability, Faulty, Suite, Verdict};
use accelerator_core::{Backend, DriverErrorKind, GIB, MIB};
use accelerator_xpu::Xpu;
use libtest_mimic::{Completion, Failed, Trial};

use crate::recorded;
use crate::rig::{Driver, trial};

/// An integrated and a discrete product.
const PRODUCTS: [&str; 2] = ["tgllp", "dg1"];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for product in PRODUCTS {
        let driver = Driver::WithoutHardware { product };
        for case in suite().cases() {
            let case = case.trial().to_owned();
            let name = format!("without_hardware::{product}::{}", case.trim_start_matches("xpu::"));
            trials.push(trial(name, driver, &[], move || conformance(&case)));
        }
    }
    let [integrated, discrete] = PRODUCTS.map(|product| Driver::WithoutHardware { product });
    let several = &[("CreateMultipleRootDevices", "3")];
    trials.extend([
        trial("without_hardware::several_devices", integrated, several, several_devices),
        trial("without_hardware::out_of_memory_and_back", discrete, &[], out_of_memory),
        trial("without_hardware::over_four_gibibytes", integrated, &[], over_four_gibibytes),
        trial("without_hardware::alignment", integrated, &[], alignment),
        trial("without_hardware::models", integrated, &[], models),
    ]);
    trials
}

fn suite() -> Suite<Xpu> {
    let why = "the driver has no device and executes nothing";
    let lacks = [Capability::Bytes, Capability::Clock, Capability::Execution];
    lacks.into_iter().fold(Suite::new("xpu"), |suite, capability| suite.lacks(capability, why))
}

fn conformance(trial: &str) -> Result<Completion, Failed> {
    let case = suite().cases().into_iter().find(|case| case.trial() == trial);
    match case.ok_or("there is no such case")?.run().verdict {
        Verdict::Passed => Ok(Completion::Completed),
        Verdict::Failed(why) => Err(why.into()),
        ignored => Ok(Completion::ignored_with(ignored)),
    }
}

const DONE: Result<Completion, Failed> = Ok(Completion::Completed);

fn several_devices() -> Result<Completion, Failed> {
    assert_eq!(Xpu::probe()?, 3);
    let opened = (0..3).map(Xpu::open).collect::<Result<Vec<_>, _>>()?;
    for (one, other) in [(0, 1), (1, 2), (2, 0)] {
        opened[one].can_access_peer(&opened[other])?;
    }
    let error = Xpu::open(3).unwrap_err();
    assert_eq!(error.kind, DriverErrorKind::InvalidArgument);
    DONE
}

/// As on a device: an error, after which everything can be freed and allocated again.
fn out_of_memory() -> Result<Completion, Failed> {
    let device = Xpu::open(0)?;
    let len = NonZeroU64::new(256 * MIB).unwrap();
    let mut before = None;
    for _ in 0..2 {
        let mut live = Vec::new();
        let error = loop {
            match device.alloc(len) {
                Ok(at) => live.push(at),
                Err(error) => break error,
            }
            assert!(live.len() < 1000, "memory never runs out");
        };
        assert_eq!((error.kind, error.code), (DriverErrorKind::OutOfMemory, 0x7000_0003));
        assert!(live.len() > 1);
        assert_eq!(*before.get_or_insert(live.len()), live.len(), "some of the memory was lost");
        // SAFETY: Just allocated, and nothing uses it.
        live.into_iter().for_each(|at| unsafe { device.dealloc(at, len) });
    }
    DONE
}

fn over_four_gibibytes() -> Result<Completion, Failed> {
    let device = Xpu::open(0)?;
    let len = NonZeroU64::new(5 * GIB).unwrap();
    let at = device.alloc(len)?;
    // SAFETY: Just allocated, and nothing uses it.
    unsafe { device.dealloc(at, len) };
    let error = device.alloc(NonZeroU64::new(1 << 50).unwrap()).unwrap_err();
    assert_eq!((error.kind, error.name), (DriverErrorKind::OutOfMemory, "ZE_RESULT_ERROR_UNSUPPORTED_SIZE"));
    DONE
}

fn alignment() -> Result<Completion, Failed> {
    let device = Xpu::open(0)?;
    let alignment = device.properties().alignment;
    for len in [1, 511, 513, 4097, 70_000, 3 * MIB + 1] {
        let len = NonZeroU64::new(len).unwrap();
        let (at, pinned) = (device.alloc(len)?, device.alloc_host(len)?);
        assert!((at.native().addr() as u64).is_multiple_of(alignment), "{at:?}");
        assert!((pinned.addr().get() as u64).is_multiple_of(alignment), "{pinned:?}");
        // SAFETY: Just allocated, and nothing uses it.
        unsafe { device.dealloc(at, len) };
        // SAFETY: As above.
        unsafe { device.dealloc_host(pinned, len) };
    }
    DONE
}

/// The final statistics of recorded jobs equal those of PyTorch's allocator, wherever the driver puts its memory. Only
/// garbage collection depends on addresses, because one of the orders in which it visits segments is the order of
/// addresses.
fn models() -> Result<Completion, Failed> {
    let device = |capacity| Ok(Faulty::new(Xpu::open(0)?).with_memory(capacity));
    for trace in recorded::models().iter().filter(|trace| !trace.name.ends_with("::collection")) {
        let (expected, ours) = (trace.expected()?, trace.printed(|trace| recorded::replay(trace, device))?);
        let [expected, ours] = [&expected, &ours].map(|text| statistics(text));
        assert!(expected.len() > 100, "{}", trace.name);
        let differing = expected.iter().zip(&ours).find(|(expected, ours)| expected != ours);
        assert!(differing.is_none() && expected.len() == ours.len(), "{}: {differing:?}", trace.name);
    }
    DONE
}

fn statistics(printed: &str) -> Vec<&str> {
    printed.lines().skip(1).take_while(|line| !line.starts_with('@')).collect()
}
