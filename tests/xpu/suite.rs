//! The whole conformance suite on the simulated driver: with several orders of its work, and with each driver call
//! failing in turn.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use accelerator_conformance::{Selection, Suite};
use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::programs::{long, suite};
use crate::rig::{Outcome, simulated, unchecked};

/// The suite compares elapsed time with the host's clock.
const REAL: (&str, &str) = ("ZE_SIM_CLOCK", "real");

pub(crate) fn trials() -> Vec<Trial> {
    // Old loaders' checks refuse virtual memory.
    let short = unchecked("suite::expandable_segments", &[], expandable_segments);
    // These take several minutes, even in release builds.
    let more = [
        simulated("suite::seed_1", &[("ZE_SIM_SEED", "1"), REAL], suite::passes_without_compact::<Xpu>),
        simulated("suite::seed_2", &[("ZE_SIM_SEED", "2"), REAL], suite::passes::<Xpu>),
        // The oldest supported driver, which has no in-order lists.
        simulated("suite::seed_3", &[("ZE_SIM_SEED", "3"), ("ZE_SIM_API_VERSION", "1.3"), REAL], suite::passes::<Xpu>),
    ];
    let faults = calls()
        .into_iter()
        .filter(|call| !BEYOND.contains(&call.as_str()))
        .map(|call| simulated(format!("suite::with_a_failing::{call}"), &[REAL], each_in_turn));
    [short].into_iter().chain(more.into_iter().chain(faults).map(long)).collect()
}

/// Returns the Level Zero functions that the backend calls, according to its sources.
pub(crate) fn calls() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/xpu/src");
    let mut calls = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the sources of the backend") {
        let source = fs::read_to_string(entry.expect("a file").path()).expect("a source");
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let words = line.split_inclusive('(').filter_map(|part| part.strip_suffix('('));
            let names = words.filter_map(|word| word.rsplit([' ', '(', ',', '|']).next());
            calls.extend(names.filter(|name| is_function(name)).map(str::to_owned));
        }
    }
    assert!(calls.len() > 30, "{calls:?}");
    calls
}

fn is_function(name: &str) -> bool {
    let rest = name.strip_prefix("zes").or_else(|| name.strip_prefix("ze"));
    rest.is_some_and(|rest| rest.starts_with(char::is_uppercase) && rest.chars().all(char::is_alphanumeric))
}

/// Calls that no case of the suite makes: kernels, copies between devices and virtual memory, which have separate
/// trials, releases when a program drops the backend, and queries of free memory. `every_call` makes each of them fail.
pub(crate) const BEYOND: [&str; 26] = [
    "zeCommandListAppendLaunchKernel",
    "zeContextDestroy",
    "zeDeviceCanAccessPeer",
    "zeEventDestroy",
    "zeEventPoolDestroy",
    "zeKernelCreate",
    "zeKernelDestroy",
    "zeKernelSetArgumentValue",
    "zeKernelSetGroupSize",
    "zeModuleBuildLogDestroy",
    "zeModuleBuildLogGetString",
    "zeModuleCreate",
    "zeModuleDestroy",
    "zePhysicalMemCreate",
    "zePhysicalMemDestroy",
    "zeVirtualMemFree",
    "zeVirtualMemMap",
    "zeVirtualMemQueryPageSize",
    "zeVirtualMemReserve",
    "zeVirtualMemUnmap",
    "zesDeviceEnumMemoryModules",
    "zesDeviceGet",
    "zesDeviceGetProperties",
    "zesDriverGet",
    "zesInit",
    "zesMemoryGetState",
];

fn expandable_segments() -> Outcome {
    let report = Suite::<Xpu>::new("xpu").run(&Selection::default().only("::F6").quiet());
    assert!(!report.has_failed() && report.passed() == 6, "{report}");
    Ok(())
}

fn each_in_turn() -> Outcome {
    // Loaders start drivers with one of two calls.
    suite::each_in_turn::<Xpu>(&["zeDriverGet", "zeInit", "zeInitDrivers"])
}
