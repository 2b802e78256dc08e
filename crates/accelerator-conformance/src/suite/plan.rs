//! From cases to trials, and from trials to a report.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::lock;
use libtest_mimic::{Completion, Failed, Trial};

use super::report::{CaseReport, Report, Verdict};
use super::shared::{Listing, Shared};
use super::withstood::Withstood;
use super::{Listed, Selection};
use crate::cases::{self, Case};
use crate::crash;
use crate::faulty::FailingCalls;
#[cfg(target_os = "linux")]
use crate::other_process;

/// The trials of one or more suites, ready to run.
#[must_use = "run it"]
pub struct Plan {
    trials: Vec<Trial>,
    results: Vec<Results>,
}

/// Results, added by the trials as they run.
type Results = Arc<Mutex<Vec<CaseReport>>>;

/// The cases of one suite, each with how the suite lists it.
struct Planned {
    shared: Arc<Shared>,
    cases: Vec<(Case, Listing)>,
    /// Numbers that are listed but belong to no case.
    unknown: Vec<u32>,
}

impl Plan {
    pub(super) fn of(listed: Listed) -> Self {
        let Planned { shared, cases, unknown } = Planned::of(listed);
        let results = Results::default();
        let mut trials: Vec<_> = cases
            .into_iter()
            .map(|(case, listing)| trial(case, listing, Arc::clone(&shared), Arc::clone(&results)))
            .collect();
        for number in unknown {
            let fail = move || Err(Failed::from(format!("case {number} is listed, but does not exist")));
            trials.push(Trial::test(format!("{}::unknown_case_{number}", shared.name()), fail));
        }
        Self { trials, results: vec![results] }
    }

    /// Combines two plans into one with the trials of both.
    pub fn and(mut self, other: Self) -> Self {
        self.trials.extend(other.trials);
        self.results.extend(other.results);
        self
    }

    /// Runs the selected trials, which the test harness prints.
    pub fn run(self, selection: &Selection) -> Report {
        crash::install();
        let conclusion = libtest_mimic::run(selection.arguments(), self.trials);
        let mut cases = Vec::new();
        for results in &self.results {
            let mut of_suite = std::mem::take(&mut *lock(results));
            of_suite.sort_by(|one, other| (one.number, &one.trial).cmp(&(other.number, &other.trial)));
            cases.append(&mut of_suite);
        }
        Report { cases, conclusion }
    }

    /// Does everything that a test binary's `main` must do: reads the arguments of `cargo test`, runs the trials, and
    /// prints the closing table.
    pub fn main(self) -> ExitCode {
        let report = self.run(&Selection::of_process());
        print!("{report}");
        report.exit_code()
    }
}

fn trial(case: Case, listing: Listing, shared: Arc<Shared>, results: Results) -> Trial {
    Trial::ignorable_test(shared.trial_name(&case), move || {
        let report = shared.report(case, listing);
        let completion = match &report.verdict {
            Verdict::Passed => Ok(Completion::Completed),
            Verdict::Failed(why) => Err(Failed::from(why)),
            not_run => Ok(Completion::ignored_with(not_run)),
        };
        lock(&results).push(report);
        completion
    })
}

/// A case of a suite that a program runs itself.
#[must_use = "run it"]
pub struct PlannedCase {
    shared: Arc<Shared>,
    case: Case,
    listing: Listing,
    trial: String,
}

impl PlannedCase {
    /// Returns the name of its trial.
    pub fn trial(&self) -> &str {
        &self.trial
    }

    /// Runs the case.
    pub fn run(self) -> CaseReport {
        crash::install();
        self.shared.report(self.case, self.listing)
    }

    /// Runs the case although driver calls fail: those of `failing` on all of its devices, and any that the program
    /// makes fail in the driver itself until `over` is called. Then checks that nothing is lost and that the device
    /// works again.
    pub fn withstand(self, failing: &Arc<FailingCalls>, over: impl FnOnce() + Send + 'static) -> Withstood {
        crash::install();
        self.shared.withstand(self.case, Arc::clone(failing), over)
    }
}

pub(super) fn cases(listed: Listed) -> Vec<PlannedCase> {
    let Planned { shared, cases, unknown: _ } = Planned::of(listed);
    let planned = |(case, listing)| {
        let shared = Arc::clone(&shared);
        let trial = shared.trial_name(&case);
        PlannedCase { shared, case, listing, trial }
    };
    cases.into_iter().map(planned).collect()
}

impl Planned {
    fn of(listed: Listed) -> Self {
        let Listed { name, opener, raw, lacks, mut unsupported, mut expected_failures } = listed;
        #[cfg(target_os = "linux")]
        other_process::obey_if_asked(&name, opener);
        let cases = cases::all().into_iter().map(|case| {
            let listing = match (unsupported.get(&case.number), expected_failures.get(&case.number)) {
                (Some(reason), _) => Listing::Unsupported(reason.clone()),
                (None, Some(reason)) => Listing::ExpectedFailure(reason.clone()),
                (None, None) => Listing::None,
            };
            (case, listing)
        });
        let cases: Vec<_> = cases.collect();
        for list in [&mut unsupported, &mut expected_failures] {
            list.retain(|number, _| cases.iter().all(|(case, _)| case.number != *number));
        }
        let unknown = unsupported.into_keys().chain(expected_failures.into_keys()).collect();
        Self { shared: Arc::new(Shared::new(name, opener, raw, lacks)), cases, unknown }
    }
}
