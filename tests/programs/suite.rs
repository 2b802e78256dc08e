//! The whole conformance suite, in shorter and longer parts.

use std::env;

use accelerator_conformance::{Report, Selection, Suite, Verdict, is_other_process};
use accelerator_core::Backend;

use super::process::{self, Outcome};
use super::simulated::Simulated;

/// Cases that run again under the policy `compact`, which doubles the time.
const COMPACT: &str = " (compact)";

/// These, and cases that go through many failing calls, orders or allocations themselves.
const THOROUGH: [&str; 10] = [COMPACT, "D54_", "F63_", "G101_", "G103_", "G104_", "G105_", "K94_", "L109_", "L113_"];

/// Cases in which other processes take part.
const INTERPROCESS: &str = "::N";

/// The whole suite passes.
pub(crate) fn passes<B: Simulated>() -> Outcome {
    has_passed(&run::<B>(without(&[])), 80);
    Ok(())
}

pub(crate) fn passes_without_compact<B: Simulated>() -> Outcome {
    has_passed(&run::<B>(without(&[COMPACT])), 60);
    Ok(())
}

fn without(names: &[&str]) -> Selection {
    names.iter().fold(Selection::default(), |selection, name| selection.without(*name))
}

fn run<B: Backend>(selection: Selection) -> Report {
    Suite::<B>::new(B::KIND.name()).run(&selection.threads(2).quiet())
}

fn has_passed(report: &Report, more_than: u64) {
    assert!(!report.has_failed(), "{report}");
    assert!(report.passed() > more_than, "{report}");
}

/// The number of the call that fails.
const TURN: &str = "ACCELERATOR_TURN";

/// The numbers of the calls that fail in turn; by default 1 and 1000.
const TURNS: &str = "ACCELERATOR_FAILING_CALLS";

/// Runs the suite with failing calls of the function at the end of the trial's name, each in its own process. Functions
/// in `may_be_unused` need not be called.
pub(crate) fn each_in_turn<B: Simulated>(may_be_unused: &[&str]) -> Outcome {
    let name = env::args().find_map(|argument| Some(argument.split_once("suite::with_a_failing::")?.1.to_owned()));
    let name = name.ok_or("the trial is not run by its name")?;
    if let Ok(turn) = env::var(TURN) {
        return with_a_failing::<B>(&name, turn.parse()?, may_be_unused);
    }
    let turns = env::var(TURNS).unwrap_or_else(|_| "1 1000".to_owned());
    turns.split_whitespace().try_for_each(|turn| process::again(&[(TURN, turn)]))
}

/// A failure is reported by the affected case with the name of the call. The work may also succeed, because the call
/// was retried or its result is optional.
fn with_a_failing<B: Simulated>(name: &str, turn: u64, may_be_unused: &[&str]) -> Outcome {
    let thorough = without(&THOROUGH);
    let selection = if ["Ipc", "Shareable"].iter().any(|word| name.contains(word)) {
        thorough.only(INTERPROCESS)
    } else {
        thorough.without(INTERPROCESS)
    };
    if is_other_process() {
        let _ = run::<B>(selection); // which obeys the process whose calls fail
        return Ok(());
    }
    let before = B::calls_of(name);
    B::fail(name, turn, B::REFUSED);
    let report = run::<B>(selection);
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
    // Either the shared device could not be opened, which affects all cases, or only one case and those that run at the
    // same time.
    assert!(naming == failed.len() || (naming > 0 && failed.len() <= 3), "{report}");
    Ok(())
}
