//! The whole conformance suite on the simulated driver: under several orders of its work, and with each driver call
//! failing in turn.

use std::env;

use accelerator_cli::backends::Choice;
use accelerator_conformance::Verdict;
use libtest_mimic::Trial;

use crate::programs::suite;
use crate::rig::{self, Outcome, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let one = trial("suite::seed_1", &[("CUDA_SIM_SEED", "1")], passes_without_compact);
    // Several minutes, even in release.
    let more = [
        trial("suite::seed_2", &[("CUDA_SIM_SEED", "2")], passes),
        trial("suite::seed_3", &[("CUDA_SIM_SEED", "3")], passes),
    ];
    let faults = calls().map(|call| trial(format!("suite::with_a_failing::{call}"), &[], each_in_turn));
    let long = |trial: Trial| trial.with_kind("long, runs with --ignored").with_ignored_flag(true);
    [one].into_iter().chain(more.into_iter().chain(faults).map(long)).collect()
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
const BEYOND: [&str; 9] = [
    "cuCtxEnablePeerAccess",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGetErrorName",
    "cuMemAddressFree",
    "cuMemRelease",
    "cuMemcpyAsync",
    "cuMemcpyPeerAsync",
    "cuStreamDestroy_v2",
];

fn passes() -> Outcome {
    suite::passes(Choice::Cuda);
    Ok(())
}

fn passes_without_compact() -> Outcome {
    suite::passes_without_compact(Choice::Cuda);
    Ok(())
}

/// Which one of the calls of this function fails.
const TURN: &str = "ACCELERATOR_CUDA_TURN";

/// Which of its calls fail, one after the other; by default the first and the 1,000th.
const TURNS: &str = "ACCELERATOR_FAILING_CALLS";

/// Runs the suite with calls of the function failing, each in a process of its own.
fn each_in_turn() -> Outcome {
    let name =
        env::args().find_map(|argument| argument.strip_prefix("suite::with_a_failing::").map(str::to_owned));
    let name = name.ok_or("the trial is not run by its name")?;
    if let Ok(turn) = env::var(TURN) {
        return with_a_failing(&name, turn.parse()?);
    }
    let turns = env::var(TURNS).unwrap_or_else(|_| "1 1000".to_owned());
    turns.split_whitespace().try_for_each(|turn| rig::again(TURN, turn))
}

/// The error is told by whom it concerns, by the name of the call; or the work succeeds all the same, since the call was tried
/// again or its answer can be done without.
fn with_a_failing(name: &str, turn: u64) -> Outcome {
    let before = rig::calls_of(name);
    rig::fail(name, turn, 1);
    let report = suite::run_in_short(Choice::Cuda);
    let made = rig::calls_of(name) - before;
    assert!(made > 0, "the suite never calls it");
    assert_eq!(rig::clear_faults() == 0, made >= turn, "{made} calls");
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
