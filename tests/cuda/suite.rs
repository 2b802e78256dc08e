//! The whole conformance suite on the simulated driver: under several orders of its work, and with each driver call
//! failing in turn.

use std::env;

use accelerator_cli::backends::Choice;
use accelerator_conformance::{Arguments, Report, Verdict};
use libtest_mimic::Trial;

use crate::rig::{self, Outcome, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let seeds = [
        trial("suite::seed_1", &[("CUDA_SIM_SEED", "1")], passes),
        trial("suite::seed_2", &[("CUDA_SIM_SEED", "2")], passes),
        trial("suite::seed_3", &[("CUDA_SIM_SEED", "3")], passes),
    ];
    // Several minutes, even in release.
    let faults = calls().map(|call| {
        trial(format!("suite::with_a_failing::{call}"), &[], each_in_turn)
            .with_kind("long, runs with --ignored")
            .with_ignored_flag(true)
    });
    seeds.into_iter().chain(faults).collect()
}

/// The driver's functions that the backend calls, from its own table.
fn calls() -> impl Iterator<Item = &'static str> {
    let table = include_str!("../../backends/cuda/src/calls.rs");
    let entries = table.lines().filter_map(|line| line.trim().split_once(" \""));
    let symbols = entries.filter_map(|(name, rest)| {
        let symbol = rest.split('"').next()?;
        (symbol.starts_with(name) && name != "cuNoSuchCall").then_some(symbol)
    });
    symbols.filter(|symbol| !BEYOND.contains(symbol))
}

/// What the suite has no case for: names of errors, and capabilities of CUDA that have trials of their own.
const BEYOND: [&str; 14] = [
    "cuCtxEnablePeerAccess",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGetErrorName",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyAsync",
    "cuMemcpyPeerAsync",
    "cuStreamDestroy_v2",
];

fn run() -> Report {
    Choice::Cuda.conformance().run(&Arguments { test_threads: Some(2), quiet: true, ..Arguments::default() })
}

fn passes() -> Outcome {
    let report = run();
    assert!(!report.has_failed(), "{report}");
    assert!(report.conclusion.num_passed > 60, "{report}");
    Ok(())
}

/// Which one of the calls of this function fails.
const TURN: &str = "ACCELERATOR_CUDA_TURN";

/// Runs the suite with the first and the 1,000th call of the function failing, each in a process of its own.
fn each_in_turn() -> Outcome {
    let name =
        env::args().find_map(|argument| argument.strip_prefix("suite::with_a_failing::").map(str::to_owned));
    let name = name.ok_or("the trial is not run by its name")?;
    if let Ok(turn) = env::var(TURN) {
        return with_a_failing(&name, turn.parse()?);
    }
    let before = rig::calls_of(&name);
    passes()?;
    let made = rig::calls_of(&name) - before;
    assert!(made > 0, "the suite never calls it");
    for turn in [1, 1_000].into_iter().take_while(|turn| *turn <= made) {
        rig::again(TURN, &turn.to_string())?;
    }
    Ok(())
}

/// The error is told by whom it concerns, by the name of the call; or the work succeeds all the same, since the call was tried
/// again or its answer can be done without.
fn with_a_failing(name: &str, turn: u64) -> Outcome {
    rig::fail(name, turn, 1);
    let report = run();
    assert_eq!(rig::clear_faults(), 0, "the call was never made");
    let failed: Vec<&String> = report
        .cases
        .iter()
        .filter_map(|case| match &case.verdict {
            Verdict::Failed(why) | Verdict::Unavailable(why) => Some(why),
            _ => None,
        })
        .collect();
    let call = name.trim_end_matches("_v2");
    let naming = failed.iter().filter(|why| why.contains(call)).count();
    // All cases share a device, which may not have opened; else one case is hit, and those beside it on its threads.
    assert!(naming == failed.len() || (naming > 0 && failed.len() <= 3), "{report}");
    Ok(())
}
