//! What the cases of a suite share: the opened backend, and what is known about it so far.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use accelerator_core::{Backend, Unavailable, VirtualMemory};

use super::report::{CaseReport, Group, Verdict};
use super::requirement::requirement;
use super::{Capability, RunRaw};
use crate::cases::{Case, Context, Run};
use crate::erased::{AnyBackend, Opener};
use crate::outcome::{Failure, Outcome, caught};
use crate::progress;
use crate::raw::Scale;

/// A longer message says no more.
const LONGEST_MESSAGE: usize = 2000;
/// The same for a message about what follows from something else.
const LONGEST_CONSEQUENCE: usize = 160;

pub(super) struct Shared {
    name: String,
    opener: Opener,
    raw: RunRaw,
    lacks: BTreeMap<Capability, String>,
    /// Opened by the first trial that needs it.
    backend: OnceLock<Result<Arc<AnyBackend>, Absent>>,
    scale: OnceLock<Scale>,
    /// Cases of group M look at how long work takes and use up the memory, so they run alone.
    turns: RwLock<()>,
    /// The first case of group M that failed.
    broken: OnceLock<String>,
    /// A case that is stuck in a driver call.
    stuck: OnceLock<String>,
}

/// What of a case runs on a backend.
pub(super) enum Body {
    /// Nothing, because the backend lacks something.
    Nothing(String),
    /// The case of group M.
    Raw,
    Here(fn(&Context) -> Outcome),
}

impl Body {
    fn of(case: &Case, lacking: Option<&str>) -> Self {
        match (lacking, case.instead, &case.run) {
            (None, _, Run::Here(run)) => Self::Here(*run),
            (None, _, Run::Raw) => Self::Raw,
            (None, _, Run::Elsewhere(reason)) => Self::Nothing((*reason).to_owned()),
            (Some(_), Some(instead), _) => Self::Here(instead),
            (Some(reason), None, _) => Self::Nothing(reason.to_owned()),
        }
    }
}

#[derive(Clone)]
pub(super) enum Absent {
    Unavailable(String),
    Broken(String),
}

/// How the suite lists one case.
#[derive(Clone)]
pub(super) enum Listing {
    None,
    Unsupported(String),
    ExpectedFailure(String),
}

impl Shared {
    pub(super) fn new(name: String, opener: Opener, raw: RunRaw, lacks: BTreeMap<Capability, String>) -> Self {
        Self {
            name,
            opener,
            raw,
            lacks,
            backend: OnceLock::new(),
            scale: OnceLock::new(),
            turns: RwLock::new(()),
            broken: OnceLock::new(),
            stuck: OnceLock::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn trial_name(&self, case: &Case) -> String {
        format!("{}::{}", self.name, case.trial_name())
    }

    /// Runs a case, watched, when it is its turn.
    pub(super) fn report(self: &Arc<Self>, case: Case, listing: Listing) -> CaseReport {
        let (suite, trial, group, number) = (self.name.clone(), self.trial_name(&case), case.group(), case.number);
        let report = |verdict| CaseReport { suite, group, number, trial: trial.clone(), verdict };
        let is_raw = group == Group::Backend;
        // A panic of another case does not matter here.
        let alone = is_raw.then(|| self.turns.write().unwrap_or_else(PoisonError::into_inner));
        let beside = (!is_raw).then(|| self.turns.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(stuck) = self.stuck.get() {
            return report(Verdict::Skipped(format!("not run: `{stuck}` is stuck in the driver")));
        }
        let shared = Arc::clone(self);
        let watched = progress::watch(&trial, move || shared.verdict(&case, &listing));
        let verdict = watched.and_then(|verdict| verdict).unwrap_or_else(|stuck| {
            let _ = self.stuck.set(trial.clone()); // an earlier one stays
            Verdict::Failed(stuck)
        });
        drop((alone, beside));
        report(match verdict {
            Verdict::Failed(why) if is_raw => {
                let _ = self.broken.set(trial.clone()); // the first one stays
                progress::set_broken(&trial);
                Verdict::Failed(shortened(why, LONGEST_MESSAGE))
            }
            Verdict::Failed(why) => Verdict::Failed(self.explained(why)),
            other => other,
        })
    }

    /// Says that the backend itself is to blame for a failure, if it is.
    fn explained(&self, why: String) -> String {
        match self.broken.get() {
            None => shortened(why, LONGEST_MESSAGE),
            Some(case) => {
                let why = shortened(why, LONGEST_CONSEQUENCE);
                format!("the backend breaks its contract, look at `{case}` first: {why}")
            }
        }
    }

    /// Runs a case.
    ///
    /// # Errors
    /// The device makes no progress.
    fn verdict(&self, case: &Case, listing: &Listing) -> Result<Verdict, String> {
        if let Run::Elsewhere(reason) = case.run {
            return Ok(Verdict::Skipped(reason.to_owned()));
        }
        let backend = match self.backend.get_or_init(|| self.open()) {
            Ok(backend) => Arc::clone(backend),
            Err(Absent::Unavailable(reason)) => return Ok(Verdict::Unavailable(reason.clone())),
            Err(Absent::Broken(reason)) => return Ok(Verdict::Failed(reason.clone())),
        };
        if let Listing::Unsupported(reason) = listing {
            return Ok(Verdict::Unsupported(reason.clone()));
        }
        let lacking = self.lacking(case, &backend);
        let outcome = match Body::of(case, lacking.as_deref()) {
            Body::Nothing(reason) => return Ok(Verdict::Skipped(reason)),
            Body::Raw => self.run_raw(case, &backend),
            Body::Here(run) => {
                let context = self.context(case, backend);
                let outcome = caught(|| run(&context));
                let left = context.finish(outcome.is_ok());
                outcome.and(left)
            }
        };
        Ok(match (outcome, listing) {
            (Err(Failure::NotAsked(reason)), _) => Verdict::Skipped(reason),
            (Err(Failure::Stuck(why)), _) => return Err(why),
            (Ok(()), Listing::ExpectedFailure(reason)) => Verdict::Failed(format!(
                "passes, though it is listed as an expected failure ({reason}): remove it from the list"
            )),
            (Err(_), Listing::ExpectedFailure(reason)) => Verdict::ExpectedFailure(reason.clone()),
            (Ok(()), _) => lacking.map_or(Verdict::Passed, Verdict::Skipped),
            (Err(Failure::Failed(why)), _) => Verdict::Failed(why),
        })
    }

    /// Runs a case of group M.
    pub(super) fn run_raw(&self, case: &Case, backend: &AnyBackend) -> Outcome {
        (self.raw)(backend, case.number, &self.scale)
    }

    /// Returns the context in which a case runs.
    pub(super) fn context(&self, case: &Case, backend: Arc<AnyBackend>) -> Context {
        let lacks = self.lacks.keys().copied().collect();
        Context::new(self.name.clone(), self.opener, backend, lacks, case.policy)
    }

    /// Returns what of a case runs on the backend.
    pub(super) fn body(&self, case: &Case, backend: &AnyBackend) -> Body {
        Body::of(case, self.lacking(case, backend).as_deref())
    }

    /// Returns why the backend lacks a capability that the case needs, or `None` if it has all.
    fn lacking(&self, case: &Case, backend: &AnyBackend) -> Option<String> {
        case.needs.iter().find_map(|needed| self.lacks(backend, *needed))
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
                Capability::Interprocess => {
                    (backend.interprocess().is_some(), "the driver has no memory between processes")
                }
                Capability::InterprocessPages => {
                    (backend.exports_pages(), "the driver has no virtual memory between processes")
                }
                Capability::Graphs => (backend.graphs().is_some(), "the driver has no graphs"),
                Capability::Bytes | Capability::Clock | Capability::Execution => return None, // listed by the suite
            };
            (!is_there).then(|| reason.to_owned())
        };
        self.lacks.get(&needed).cloned().or_else(says)
    }

    pub(super) fn open(&self) -> Result<Arc<AnyBackend>, Absent> {
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

fn shortened(mut why: String, longest: usize) -> String {
    if why.len() > longest {
        let end = (0..=longest).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
        why.truncate(end);
        why.push('…');
    }
    why
}
