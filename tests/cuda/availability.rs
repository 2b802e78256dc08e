//! Which devices exist, and the reason when there are none.

use std::time::{Duration, Instant};

use accelerator_core::{Accelerator, Backend, Error, GIB};
use accelerator_cuda::Cuda;
use libtest_mimic::{Completion, Trial};

use crate::programs::availability;
use crate::rig::{self, Outcome, device, trial, trial_without_driver};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        // The rig cannot hide the machine's own driver, because the loader finds it wherever it is installed.
        match rig::machine_has_a_driver() {
            true => Trial::ignorable_test("availability::no_driver", || {
                Ok(Completion::ignored_with("this machine has a driver"))
            }),
            false => trial_without_driver("availability::no_driver", no_driver),
        },
        trial("availability::no_device", &[("CUDA_SIM_DEVICES", "0")], no_device),
        trial(
            "availability::no_visible_device",
            &[("CUDA_SIM_DEVICES", "2"), ("CUDA_VISIBLE_DEVICES", "7")],
            no_visible_device,
        ),
        trial("availability::mismatch", &[("CUDA_SIM_FAIL", "cuInit@*=803")], mismatch),
        trial(
            "availability::visible_devices",
            &[("CUDA_SIM_DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", "2,0")],
            visible_devices,
        ),
        trial("availability::properties", &[("CUDA_SIM_MEMORY", "3G")], properties),
        trial("availability::only_used_devices_have_contexts", &[("CUDA_SIM_DEVICES", "8")], contexts),
        trial("availability::facade_prefers_cuda", &[("CUDA_SIM_DEVICES", "2")], facade),
        trial("availability::after_fork", &[], availability::after_fork::<Cuda>),
    ]
}

fn reason() -> String {
    let start = Instant::now();
    let reason = Cuda::probe().unwrap_err().reason;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(Accelerator::<Cuda>::count(), 0);
    let error = Accelerator::<Cuda>::open(0).unwrap_err();
    assert!(matches!(error, Error::NoAccelerator { .. }) && error.to_string().contains(&reason), "{error}");
    reason
}

fn no_driver() -> Outcome {
    let reason = reason();
    assert!(reason.contains("no NVIDIA driver") && reason.contains("libcuda"), "{reason}");
    Ok(())
}

fn no_device() -> Outcome {
    assert_eq!(reason(), "the NVIDIA driver finds no device");
    Ok(())
}

fn no_visible_device() -> Outcome {
    assert_eq!(reason(), "the NVIDIA driver finds no device with CUDA_VISIBLE_DEVICES=7");
    Ok(())
}

fn mismatch() -> Outcome {
    let reason = reason();
    assert!(reason.contains("cuInit") && reason.contains("803") && reason.contains("reboot"), "{reason}");
    Ok(())
}

fn visible_devices() -> Outcome {
    assert_eq!(Cuda::probe()?, 2);
    let names = [0, 1].map(|ordinal| Cuda::open(ordinal).unwrap().properties().name.clone());
    assert_eq!(names, ["Simulated CUDA device 2", "Simulated CUDA device 0"]);
    let error = Accelerator::<Cuda>::open(2).unwrap_err();
    assert!(matches!(error, Error::InvalidDevice { index: 2, count: 2, .. }), "{error:?}");
    let refused = Cuda::open(2).unwrap_err();
    assert_eq!((refused.call, refused.code), ("cuDeviceGet", 101));
    Ok(())
}

fn properties() -> Outcome {
    let device = device()?;
    let properties = device.properties();
    assert_eq!(properties.name, "Simulated CUDA device 0");
    assert!(properties.driver.contains("CUDA 13.0"), "{}", properties.driver);
    assert_eq!(properties.total_memory, 3 * GIB);
    assert!(properties.uuid.is_some() && properties.pci_address.is_some());
    let (least, greatest) = properties.stream_priorities;
    assert!(least > greatest, "{least} {greatest}");
    assert_eq!(device.stream(-100)?.priority(), greatest);
    assert_eq!(device.backend().compute_capability()?, (9, 0));
    assert_eq!(device.memory_info()?.total, 3 * GIB);
    Ok(())
}

fn contexts() -> Outcome {
    assert_eq!(Accelerator::<Cuda>::count(), 8);
    let made = || (0..8).map(rig::contexts_made).collect::<Vec<_>>();
    assert_eq!(made(), [0; 8]);
    let device = Accelerator::<Cuda>::open(3)?;
    let _ = device.allocate(1, device.default_stream())?;
    assert_eq!(made().iter().map(|made| u64::from(*made > 0)).collect::<Vec<_>>(), [0, 0, 0, 1, 0, 0, 0, 0]);
    Ok(())
}

fn facade() -> Outcome {
    availability::facade_prefers::<Cuda>()?;
    assert_eq!(rig::contexts_made(1), 0);
    Ok(())
}
