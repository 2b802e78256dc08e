//! The whole conformance suite, in shorter and longer parts.

use std::env;

use accelerator_cli::backends::Choice;
use accelerator_conformance::{Arguments, Report, Verdict};

use super::process::{self, Outcome};
use super::simulated::Simulated;

/// What runs once more under the policy `compact` takes as long again.
const COMPACT: &str = " (compact)";

/// That, and cases that go through calls or their orders by themselves, many times.
const THOROUGH: [&str; 4] = [COMPACT, "D54_", "K94_", "L113_"];

/// All of it passes.
pub(crate) fn passes<B: Simulated>() -> Outcome {
    has_passed(&run(B::CHOICE, &[]), 80);
    Ok(())
}

pub(crate) fn passes_without_compact<B: Simulated>() -> Outcome {
    has_passed(&run(B::CHOICE, &[COMPACT]), 60);
    Ok(())
}

fn run(backend: Choice, skip: &[&str]) -> Report {
    let skip = skip.iter().map(|name| (*name).to_owned()).collect();
    let arguments = Arguments { test_threads: Some(2), quiet: true, skip, ..Arguments::default() };
    backend.conformance().run(&arguments)
}

fn has_passed(report: &Report, more_than: u64) {
    assert!(!report.has_failed(), "{report}");
    assert!(report.conclusion.num_passed > more_than, "{report}");
}

/// Which one of the calls of this function fails.
const TURN: &str = "ACCELERATOR_TURN";

/// Which of its calls fail, one after the other; by default the first and the 1,000th.
const TURNS: &str = "ACCELERATOR_FAILING_CALLS";

/// Runs the suite with calls of the function failing that the trial's name ends in, each in a process of its own. Those in
/// `may_be_unused` need not be called.
pub(crate) fn each_in_turn<B: Simulated>(may_be_unused: &[&str]) -> Outcome {
    let name =
        env::args().find_map(|argument| Some(argument.split_once("suite::with_a_failing::")?.1.to_owned()));
    let name = name.ok_or("the trial is not run by its name")?;
    if let Ok(turn) = env::var(TURN) {
        return with_a_failing::<B>(&name, turn.parse()?, may_be_unused);
    }
    let turns = env::var(TURNS).unwrap_or_else(|_| "1 1000".to_owned());
    turns.split_whitespace().try_for_each(|turn| process::again(&[(TURN, turn)]))
}

/// The error is told by whom it concerns, by the name of the call; or the work succeeds all the same, since the call was tried
/// again or its answer can be done without.
fn with_a_failing<B: Simulated>(name: &str, turn: u64, may_be_unused: &[&str]) -> Outcome {
    let before = B::calls_of(name);
    B::fail(name, turn, B::REFUSED);
    let report = run(B::CHOICE, &THOROUGH);
    let made = B::calls_of(name) - before;
    assert!(made > 0 || may_be_unused.contains(&name), "the suite never calls it");
    assert_eq!(B::clear_faults() == 0, made >= turn, "{made} calls");
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
