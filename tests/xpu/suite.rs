//! The whole conformance suite on the simulated driver: under several orders of its work, and with each driver call
//! failing in turn.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

use accelerator_cli::backends::Choice;
use accelerator_conformance::{Arguments, Verdict};
use libtest_mimic::Trial;

use crate::control::{self, REFUSED};
use crate::programs::suite;
use crate::rig::{self, Outcome, simulated, unchecked};

pub(crate) fn trials() -> Vec<Trial> {
    let short = [
        simulated("suite::seed_1", &[("ZE_SIM_SEED", "1")], passes_without_compact),
        // Old loaders' checks leave no virtual memory.
        unchecked("suite::expandable_segments", &[], expandable_segments),
    ];
    // Several minutes, even in release.
    let more = [
        simulated("suite::seed_2", &[("ZE_SIM_SEED", "2")], passes),
        // On a driver that keeps no order of its own, the oldest that is served.
        simulated("suite::seed_3", &[("ZE_SIM_SEED", "3"), ("ZE_SIM_API_VERSION", "1.3")], passes),
    ];
    let faults = calls()
        .into_iter()
        .filter(|call| !BEYOND.contains(&call.as_str()))
        .map(|call| simulated(format!("suite::with_a_failing::{call}"), &[], each_in_turn));
    let long = |trial: Trial| trial.with_kind("long, runs with --ignored").with_ignored_flag(true);
    short.into_iter().chain(more.into_iter().chain(faults).map(long)).collect()
}

/// The functions of Level Zero that the backend calls, as its sources have them.
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

/// What the suite has no case for: kernels, copies between devices and virtual memory, which have trials of their own, what is
/// given back when a program drops the backend, and how much is free. `every_call` has each of them fail.
pub(crate) const BEYOND: [&str; 27] = [
    "zeCommandListAppendLaunchKernel",
    "zeCommandListDestroy",
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
    let group_f = Arguments { filter: Some("::F6".to_owned()), quiet: true, ..Arguments::default() };
    let report = Choice::Xpu.conformance().run(&group_f);
    assert!(!report.has_failed() && report.conclusion.num_passed == 6, "{report}");
    Ok(())
}

fn passes() -> Outcome {
    suite::passes(Choice::Xpu);
    Ok(())
}

fn passes_without_compact() -> Outcome {
    suite::passes_without_compact(Choice::Xpu);
    Ok(())
}

/// Which one of the calls of this function fails.
const TURN: &str = "ACCELERATOR_XPU_TURN";

/// Which of its calls fail, one after the other; by default the first and the 1,000th.
const TURNS: &str = "ACCELERATOR_FAILING_CALLS";

/// Runs the suite with the first and the 1,000th call of the function failing, each in a process of its own.
fn each_in_turn() -> Outcome {
    let name =
        env::args().find_map(|argument| Some(argument.split_once("suite::with_a_failing::")?.1.to_owned()));
    let name = name.ok_or("the trial is not run by its name")?;
    match env::var(TURN) {
        Ok(turn) => with_a_failing(&name, turn.parse()?),
        Err(_) => {
            let turns = env::var(TURNS).unwrap_or_else(|_| "1 1000".to_owned());
            turns.split_whitespace().try_for_each(|turn| rig::again(&[(TURN, turn)]))
        }
    }
}

/// The error is told by whom it concerns, by the name of the call; or the work succeeds all the same, since the call was tried
/// again or its answer can be done without.
fn with_a_failing(name: &str, turn: u64) -> Outcome {
    control::fail(name, turn, REFUSED);
    let report = suite::run_in_short(Choice::Xpu);
    let made = control::calls_of(name);
    // Loaders start drivers by either of two calls.
    assert!(
        made > 0 || ["zeDriverGet", "zeInit", "zeInitDrivers"].contains(&name),
        "the suite never calls it"
    );
    assert_eq!(control::clear_faults() == 0, made >= turn, "{made} calls");
    let failed: Vec<&String> = report
        .cases
        .iter()
        .filter_map(|case| match &case.verdict {
            Verdict::Failed(why) | Verdict::Unavailable(why) => Some(why),
            _ => None,
        })
        .collect();
    let naming = failed.iter().filter(|why| why.contains(name)).count();
    // All cases share a device, which may not have opened; else one case is hit, and those beside it on its threads.
    assert!(naming == failed.len() || (naming > 0 && failed.len() <= 3), "{report}");
    Ok(())
}
