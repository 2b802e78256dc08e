//! From cases to trials, and from trials to a report.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use accelerator_core::{Backend, Unavailable, VirtualMemory};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::report::{CaseReport, Report, Verdict};
use super::requirement::requirement;
use super::{Capability, Listed};
use crate::cases::{self, Case, Context, Run};
use crate::erased::{AnyBackend, Opener};

/// The trials of one or more suites, ready to run.
#[must_use = "run it"]
pub struct Plan {
    trials: Vec<Trial>,
    results: Vec<Results>,
}

/// Results, added by the trials as they run.
type Results = Arc<Mutex<Vec<CaseReport>>>;

/// State shared by the trials of one suite.
struct Shared {
    name: String,
    opener: Opener,
    lacks: BTreeMap<Capability, String>,
    /// Opened by the first trial that needs it.
    backend: OnceLock<Result<Arc<AnyBackend>, Absent>>,
}

/// The cases of one suite, each with how the suite lists it.
struct Planned {
    shared: Shared,
    cases: Vec<(Case, Listing)>,
    /// Numbers that are listed but belong to no case.
    unknown: Vec<u32>,
}

#[derive(Clone)]
enum Absent {
    Unavailable(String),
    Broken(String),
}

/// How the suite lists one case.
#[derive(Clone)]
enum Listing {
    None,
    Unsupported(String),
    ExpectedFailure(String),
}

impl Plan {
    pub(super) fn of(listed: Listed) -> Self {
        let Planned { shared, cases, unknown } = Planned::of(listed);
        let (shared, results) = (Arc::new(shared), Results::default());
        let mut trials: Vec<_> = cases
            .into_iter()
            .map(|(case, listing)| trial(case, listing, Arc::clone(&shared), Arc::clone(&results)))
            .collect();
        for number in unknown {
            let fail = move || Err(Failed::from(format!("case {number} is listed, but does not exist")));
            trials.push(Trial::test(format!("{}::unknown_case_{number}", shared.name), fail));
        }
        Self { trials, results: vec![results] }
    }

    /// Combines two plans into one with the trials of both.
    pub fn and(mut self, other: Self) -> Self {
        self.trials.extend(other.trials);
        self.results.extend(other.results);
        self
    }

    /// Returns only the trials.
    pub fn into_trials(self) -> Vec<Trial> {
        self.trials
    }

    /// Runs the trials that the arguments select.
    pub fn run(self, arguments: &Arguments) -> Report {
        let conclusion = libtest_mimic::run(arguments, self.trials);
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
        let report = self.run(&Arguments::from_args());
        print!("{report}");
        report.exit_code()
    }
}

fn trial(case: Case, listing: Listing, shared: Arc<Shared>, results: Results) -> Trial {
    Trial::ignorable_test(shared.trial_name(&case), move || {
        let report = shared.report(&case, &listing);
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
    trial: String,
    run: Box<dyn FnOnce() -> CaseReport + Send>,
}

impl PlannedCase {
    /// Returns the name of its trial.
    pub fn trial(&self) -> &str {
        &self.trial
    }

    /// Runs the case.
    pub fn run(self) -> CaseReport {
        (self.run)()
    }
}

pub(super) fn cases(listed: Listed) -> Vec<PlannedCase> {
    let Planned { shared, cases, unknown: _ } = Planned::of(listed);
    let shared = Arc::new(shared);
    let planned = |(case, listing)| {
        let shared = Arc::clone(&shared);
        let trial = shared.trial_name(&case);
        PlannedCase { trial, run: Box::new(move || shared.report(&case, &listing)) }
    };
    cases.into_iter().map(planned).collect()
}

impl Planned {
    fn of(listed: Listed) -> Self {
        let Listed { name, opener, lacks, mut unsupported, mut expected_failures } = listed;
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
        Self { shared: Shared { name, opener, lacks, backend: OnceLock::new() }, cases, unknown }
    }
}

impl Shared {
    fn trial_name(&self, case: &Case) -> String {
        format!("{}::{}", self.name, case.trial_name())
    }

    fn report(&self, case: &Case, listing: &Listing) -> CaseReport {
        let (suite, trial, verdict) = (self.name.clone(), self.trial_name(case), self.verdict(case, listing));
        CaseReport { suite, group: case.group(), number: case.number, trial, verdict }
    }

    fn verdict(&self, case: &Case, listing: &Listing) -> Verdict {
        let run = match &case.run {
            Run::Here(run) => run,
            Run::Elsewhere(reason) => return Verdict::Skipped((*reason).to_owned()),
        };
        let backend = match self.backend.get_or_init(|| self.open()) {
            Ok(backend) => Arc::clone(backend),
            Err(Absent::Unavailable(reason)) => return Verdict::Unavailable(reason.clone()),
            Err(Absent::Broken(reason)) => return Verdict::Failed(reason.clone()),
        };
        if let Listing::Unsupported(reason) = listing {
            return Verdict::Unsupported(reason.clone());
        }
        let lacking = case.needs.iter().find_map(|needed| self.lacks(&backend, *needed));
        let run = match (&lacking, case.instead) {
            (None, _) => *run,
            (Some(_), Some(instead)) => instead,
            (Some(reason), None) => return Verdict::Skipped(reason.clone()),
        };
        let context = Context::new(self.opener, backend, self.lacks.keys().copied().collect(), case.policy);
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&context))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Failed::from(text.unwrap_or("panicked")))
        });
        let left = context.finish(outcome.is_ok());
        match (outcome.and(left), listing) {
            (Ok(()), Listing::ExpectedFailure(reason)) => Verdict::Failed(format!(
                "passes, though it is listed as an expected failure ({reason}): remove it from the list"
            )),
            (Err(_), Listing::ExpectedFailure(reason)) => Verdict::ExpectedFailure(reason.clone()),
            (Ok(()), _) => lacking.map_or(Verdict::Passed, Verdict::Skipped),
            (Err(why), _) => Verdict::Failed(why.message().unwrap_or("failed").to_owned()),
        }
    }

    /// Returns why the backend lacks a capability that a case needs, or `None` if it has it.
    fn lacks(&self, backend: &AnyBackend, needed: Capability) -> Option<String> {
        let says = || {
            let memory = backend.virtual_memory();
            let (is_there, reason) = match needed {
                Capability::VirtualMemory => (memory.is_some(), "the driver has no virtual memory"),
                Capability::Aliases => {
                    (memory.is_some_and(VirtualMemory::maps_twice), "the driver maps memory at one address only")
                }
                Capability::SerializedConflicts => {
                    (backend.serializes_conflicts(), "the driver leaves the ordering of work to the program")
                }
                Capability::Bytes | Capability::Clock | Capability::Execution => return None, // listed by the suite
            };
            (!is_there).then(|| reason.to_owned())
        };
        self.lacks.get(&needed).cloned().or_else(says)
    }

    fn open(&self) -> Result<Arc<AnyBackend>, Absent> {
        let name = &self.name;
        match self.opener.probe() {
            Ok(1..) => {}
            Ok(0) => return Err(self.absent("there is no device")),
            Err(Unavailable { reason, .. }) => return Err(self.absent(&reason)),
        }
        match self.opener.open(0) {
            Ok(backend) => Ok(Arc::new(backend)),
            Err(error) => Err(Absent::Broken(format!("`{name}` has a device, but it cannot be opened: {error}"))),
        }
    }

    fn absent(&self, reason: &str) -> Absent {
        let required = requirement(&self.name, reason);
        required.map_or_else(|| Absent::Unavailable(reason.to_owned()), Absent::Broken)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
