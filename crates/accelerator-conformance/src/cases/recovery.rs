//! D, hooks, and the state of the device after an error: cases 50 to 53.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use accelerator_core::{Error, MIB};

use super::out_of_memory::refusal;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::controls::Controls;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(50, "observers_may_allocate", observers_may_allocate).of_any_policy(),
        Case::new(51, "callback_that_frees_helps", callback_that_frees_helps).of_any_policy(),
        Case::new(52, "usable_after_an_error", usable_after_an_error).of_any_policy(),
        Case::new(53, "recovered_retry_is_silent", recovered_retry_is_silent),
    ]
}

fn observers_may_allocate(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let seen = Arc::new(AtomicU64::new(0));
    let trouble = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let (seen, trouble) = (Arc::clone(&seen), Arc::clone(&trouble));
        move |report: &accelerator_core::OutOfMemory| {
            seen.fetch_add(report.requested, Ordering::Relaxed);
            let allocated = device.alloc(4_096).and_then(|small| device.free(small));
            let emptied = device.allocator().empty_cache();
            let counted = device.statistics().num_ooms > 0 && device.allocator().snapshot().segments.len() < 9;
            // If the observer's own request fails, no observer is called for it.
            let nested = device.alloc(100 * MIB).is_err();
            if allocated.is_err() || emptied.is_err() || !counted || !nested {
                trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(report.clone());
            }
        }
    };
    let id = device.allocator().add_out_of_memory_observer(observer);
    refusal(device, 70 * MIB)?;
    assert_eq!(seen.load(Ordering::Relaxed), 70 * MIB, "observed once");
    refusal(device, 80 * MIB)?;
    assert_eq!(seen.load(Ordering::Relaxed), 150 * MIB, "each failure is observed once");
    assert!(device.allocator().remove_hook(id));
    assert!(!device.allocator().remove_hook(id));
    refusal(device, 90 * MIB)?;
    assert_eq!(seen.load(Ordering::Relaxed), 150 * MIB, "a removed observer is not called");
    assert_eq!(trouble.lock().map(|trouble| trouble.len()).ok(), Some(0));
    device.check_consistency();
    Ok(())
}

fn callback_that_frees_helps(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let hoard = Arc::new(Mutex::new(vec![device.alloc(50 * MIB)?]));
    let callback = {
        let hoard = Arc::clone(&hoard);
        move || {
            let freed = std::mem::take(&mut *hoard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
            let any = !freed.is_empty();
            device.free_all(freed).is_ok() && any
        }
    };
    let id = device.allocator().add_free_memory_callback(callback);
    let calls = device.all_calls();
    let taken = device.alloc(50 * MIB)?;
    assert_eq!(device.all_calls(), calls, "the driver must not be called");
    assert!(device.allocator().remove_hook(id));
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms), (0, 0));
    device.check_consistency();
    Ok(device.free(taken)?)
}

fn usable_after_an_error(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let live = device.alloc(30 * MIB)?;
    for round in 1..=5 {
        refusal(device, 40 * MIB)?;
        assert_eq!(device.statistics().num_ooms, round);
        let small = device.alloc(10 * MIB)?;
        device.free(small)?;
        device.check_consistency();
    }
    device.free(live)?;
    let large = device.alloc(60 * MIB)?;
    device.check_consistency();
    Ok(device.free(large)?)
}

fn recovered_retry_is_silent(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "")?;
    let observed = Arc::new(AtomicU64::new(0));
    let observer = {
        let observed = Arc::clone(&observed);
        move |_: &accelerator_core::OutOfMemory| {
            observed.fetch_add(1, Ordering::Relaxed);
        }
    };
    device.allocator().add_out_of_memory_observer(observer);
    device.backend().fail_allocs(1);
    let taken = device.alloc(5 * MIB)?;
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms), (1, 0));
    assert_eq!(observed.load(Ordering::Relaxed), 0, "a recovered retry must not be observed");
    assert_eq!(device.calls(Call::MemoryInfo), 0, "no report is made");

    device.backend().fail_allocs(2);
    assert!(matches!(device.alloc(50 * MIB), Err(Error::OutOfMemory(_))));
    let statistics = device.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms), (2, 1));
    assert_eq!(observed.load(Ordering::Relaxed), 1);
    device.check_consistency();
    Ok(device.free(taken)?)
}
