//! The whole conformance suite, in shorter and longer parts.

use accelerator_cli::backends::Choice;
use accelerator_conformance::{Arguments, Report};

/// What runs once more under the policy `compact` takes as long again.
const COMPACT: &str = " (compact)";

/// That, and cases that go through calls or their orders by themselves, many times.
const THOROUGH: [&str; 4] = [COMPACT, "D54_", "K94_", "L113_"];

/// All of it passes.
pub(crate) fn passes(backend: Choice) {
    has_passed(&run(backend, &[]), 80);
}

pub(crate) fn passes_without_compact(backend: Choice) {
    has_passed(&run(backend, &[COMPACT]), 60);
}

/// For each of many failures.
pub(crate) fn run_in_short(backend: Choice) -> Report {
    run(backend, &THOROUGH)
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
