//! Which devices exist, and the reason when there are none.

use std::time::{Duration, Instant};

use accelerator_core::{Accelerator, Backend, DeviceKind, DriverErrorKind, Error, GIB, PciAddress, Uuid};
use accelerator_xpu::Xpu;
use libtest_mimic::{Completion, Trial};

use crate::control;
use crate::programs::{availability, process};
use crate::rig::{Driver, Outcome, device, device_numbered, simulated, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let done = |run: fn() -> Outcome| move || run().map(|()| Completion::Completed);
    vec![
        trial("availability::no_loader", Driver::NoLoader, &[], done(no_loader)),
        trial("availability::old_loader", Driver::OldLoader, &[], done(old_loader)),
        trial("availability::no_driver", Driver::None, &[], done(no_driver)),
        simulated("availability::no_device", &[("ZE_SIM_DEVICES", "0")], no_device),
        simulated("availability::failed_start::refused", CRASHES_AFTER_REFUSAL, failed_start),
        simulated("availability::failed_start::lost", CRASHES_AFTER_LOSS, failed_start),
        simulated("availability::failed_start::no_gpu", CRASHES_WITHOUT_GPU, failed_start),
        simulated("availability::devices_that_do_not_answer", UNTOLD_DEVICES, untold_devices),
        simulated("availability::several_drivers", &[], several_drivers),
        simulated("availability::no_visible_device", MASKED, no_visible_device),
        simulated(
            "availability::visible_devices",
            &[("ZE_SIM_DEVICES", "4"), ("ZE_AFFINITY_MASK", "3,1")],
            visible_devices,
        ),
        simulated("availability::properties", &[("ZE_SIM_MEMORY", "3G")], properties),
        simulated("availability::no_pci_address", &[("ZE_SIM_QUIRKS", "no-pci")], no_pci_address),
        simulated("availability::one_context_for_all_devices", &[("ZE_SIM_DEVICES", "3")], contexts),
        simulated(
            "availability::facade_prefers_xpu",
            &[("ZE_SIM_DEVICES", "2"), ("CUDA_VISIBLE_DEVICES", "")],
            availability::facade_prefers::<Xpu>,
        ),
        simulated("availability::facade_prefers_cuda", &[], facade_prefers_cuda),
        simulated("availability::after_fork", &[], availability::after_fork::<Xpu>),
    ]
}

const CRASHES: (&str, &str) = ("ZE_SIM_QUIRKS", "crash-after-failed-init");
// Newer loaders start drivers with the second of these functions.
const CRASHES_AFTER_REFUSAL: &[(&str, &str)] =
    &[CRASHES, ("ZE_SIM_FAIL", "zeInit@*=0x78000001,zeInitDrivers@*=0x78000001")];
const CRASHES_AFTER_LOSS: &[(&str, &str)] =
    &[CRASHES, ("ZE_SIM_FAIL", "zeInit@*=0x70000001,zeInitDrivers@*=0x70000001")];
const CRASHES_WITHOUT_GPU: &[(&str, &str)] = &[CRASHES, ("ZE_SIM_DEVICES", "0")];
const UNTOLD_DEVICES: &[(&str, &str)] = &[("ZE_SIM_FAIL", "zeDeviceGet@*=0x70000001")];
const MASKED: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_AFFINITY_MASK", "7")];

/// Returns why there is no device. The answer must come quickly, and be the same each time.
fn reason() -> String {
    let start = Instant::now();
    let reason = Xpu::probe().unwrap_err().reason;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(Accelerator::<Xpu>::count(), 0);
    let error = Accelerator::<Xpu>::open(0).unwrap_err();
    assert!(matches!(error, Error::NoAccelerator { .. }) && error.to_string().contains(&reason), "{error}");
    let refused = Xpu::open(0).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::Unsupported, "zeInit"));
    reason
}

fn no_loader() -> Outcome {
    let reason = reason();
    for part in ["libze_loader.so.1", "install", "libze1", "libze-intel-gpu1"] {
        assert!(reason.contains(part), "{reason}");
    }
    Ok(())
}

/// A missing function is an error that names it.
fn old_loader() -> Outcome {
    let reason = reason();
    for part in ["Level Zero cannot be initialized", "zeInit", "too old", "update it"] {
        assert!(reason.contains(part), "{reason}");
    }
    Ok(())
}

/// Checks the loader's answer without a driver, and the advice.
fn check_no_gpu(reason: &str) {
    for part in ["no Level Zero driver finds a GPU", "ZE_RESULT_ERROR_UNINITIALIZED", "install", "/dev/dri"] {
        assert!(reason.contains(part), "{reason}");
    }
}

fn no_driver() -> Outcome {
    check_no_gpu(&reason());
    Ok(())
}

fn no_device() -> Outcome {
    check_no_gpu(&reason());
    Ok(())
}

/// The simulated driver aborts the process at the next call after a failed start, as one loader does.
fn failed_start() -> Outcome {
    let first = reason();
    assert!(first.contains("zeInit"), "{first}");
    let starts = control::calls_of("zeInit") + control::calls_of("zeInitDrivers");
    let calls = control::calls();
    assert_eq!(calls, starts, "a call after a failed start");
    assert_eq!(reason(), first);
    assert_eq!(control::calls(), calls, "the driver is called again");
    Ok(())
}

fn untold_devices() -> Outcome {
    let reason = reason();
    // Some loaders query the devices when they start drivers.
    let names = ["zeDeviceGet", "zeInit"].iter().any(|call| reason.contains(call));
    assert!(names && reason.contains("ZE_RESULT_ERROR_DEVICE_LOST"), "{reason}");
    Ok(())
}

/// The loader opens every driver that it finds. A failing one does not hide the others.
fn several_drivers() -> Outcome {
    const SECOND: &str = "ACCELERATOR_XPU_SECOND_FAILS";
    match std::env::var(SECOND).as_deref() {
        Ok("0") => assert_eq!(Xpu::probe()?, 2),
        Ok(_) => {
            control::fail("zeDeviceGet", 0, control::LOST);
            assert_eq!(Xpu::probe()?, 1);
            assert!(control::calls_of("zeDeviceGet") > 0);
            control::clear_faults();
            let device = device()?;
            drop(device.allocate(1000, device.default_stream())?);
            assert_eq!(control::live_allocations(), 0, "it belongs to the other driver");
        }
        Err(_) => {
            let tmp = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
            let (first, second) = (process::beside("ze_sim"), tmp.join("libze_sim_again.so"));
            std::fs::copy(&first, &second)?;
            for (first, second) in [(&first, &second), (&second, &first)] {
                let both = format!("{},{}", first.display(), second.display());
                for fails in ["0", "1"] {
                    process::again(&[(SECOND, fails), ("ZE_ENABLE_ALT_DRIVERS", &both)])?;
                }
            }
        }
    }
    Ok(())
}

fn no_visible_device() -> Outcome {
    let reason = reason();
    assert!(reason.contains(" GPU with ZE_AFFINITY_MASK=7"), "{reason}");
    Ok(())
}

/// The simulated driver keeps the machine's order, and derives identities from the device's number in the machine.
fn visible_devices() -> Outcome {
    assert_eq!(Xpu::probe()?, 2);
    for (ordinal, number) in [(0, 1), (1, 3)] {
        let device = device_numbered(ordinal)?;
        let properties = device.properties();
        let uuid = format!("7e514000-0000-4000-8000-{number:012x}");
        assert_eq!(properties.uuid.as_ref().map(Uuid::to_string), Some(uuid));
        let address = PciAddress { domain: 0x0b, bus: 0x20 + number, device: 5, function: 0 };
        assert_eq!(properties.pci_address, Some(address));
    }
    let error = Accelerator::<Xpu>::open(2).unwrap_err();
    assert!(matches!(error, Error::InvalidDevice { index: 2, count: 2, .. }), "{error:?}");
    let refused = Xpu::open(2).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::InvalidArgument, "zeDeviceGet"));
    Ok(())
}

fn properties() -> Outcome {
    let device = device()?;
    let properties = device.properties();
    assert_eq!(properties.name, "Simulated Level Zero device");
    assert!(properties.driver.starts_with("Level Zero 1."), "{}", properties.driver);
    assert_eq!((properties.total_memory, device.memory_info()?.total), (3 * GIB, 3 * GIB));
    let (least, greatest) = properties.stream_priorities;
    assert!(least > greatest, "{least} {greatest}");
    assert_eq!(device.stream(-100)?.priority(), greatest);
    let dtypes = &properties.capability.supported_dtypes;
    assert!(dtypes.contains(&"float32") && !dtypes.contains(&"float64"), "the device has none: {dtypes:?}");
    Ok(())
}

fn no_pci_address() -> Outcome {
    assert_eq!(device()?.properties().pci_address, None);
    Ok(())
}

/// The context is created when the first device is opened.
fn contexts() -> Outcome {
    assert_eq!(Accelerator::<Xpu>::count(), 3);
    assert_eq!(control::live_contexts(), 0);
    for ordinal in [2, 0, 2] {
        device_numbered(ordinal)?;
        assert_eq!(control::live_contexts(), 1);
    }
    Ok(())
}

/// The other simulated driver is preloaded into the process.
fn facade_prefers_cuda() -> Outcome {
    const BOTH: &str = "ACCELERATOR_XPU_BOTH";
    if std::env::var_os(BOTH).is_none() {
        return process::again(&[(BOTH, "1"), ("LD_PRELOAD", &process::beside("cuda_sim").to_string_lossy())]);
    }
    assert_eq!(accelerator::current_accelerator(), Some(DeviceKind::new("cuda")));
    assert_eq!(Xpu::probe()?, 1);
    let buffer = accelerator::Buffer::allocate(1000, None)?;
    assert_eq!((buffer.device().to_string(), control::live_allocations()), ("cuda:0".to_owned(), 0));
    Ok(())
}
