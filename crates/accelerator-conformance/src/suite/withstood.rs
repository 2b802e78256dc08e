//! Cases whose driver calls fail.

use std::sync::Arc;

use super::report::Verdict;
use super::shared::{Absent, Body, Shared};
use crate::cases::Case;
use crate::faulty::FailingCalls;
use crate::outcome::{Failure, Outcome, caught};
use crate::progress;

/// How a case ended whose driver calls failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Withstood {
    /// The result of the case itself, which may fail.
    pub verdict: Verdict,
    /// What was wrong afterwards, when calls succeeded again, or if the case did not end: a fault of the core or of the
    /// backend.
    pub afterwards: Result<(), String>,
}

impl Shared {
    /// Runs a case, watched, and then checks the devices.
    pub(super) fn withstand(
        self: &Arc<Self>,
        case: Case,
        failing: Arc<FailingCalls>,
        over: impl FnOnce() + Send + 'static,
    ) -> Withstood {
        let shared = Arc::clone(self);
        let watched = progress::watch(&self.trial_name(&case), move || shared.withstood(&case, failing, over));
        watched.unwrap_or_else(|stuck| Withstood { verdict: Verdict::Failed(stuck.clone()), afterwards: Err(stuck) })
    }

    fn withstood(&self, case: &Case, failing: Arc<FailingCalls>, over: impl FnOnce()) -> Withstood {
        let (outcome, context) = match self.open() {
            Ok(backend) => {
                let context = self.context(case, Arc::clone(&backend)).with_failing(Arc::clone(&failing));
                let outcome = match self.body(case, &backend) {
                    Body::Nothing(reason) => Err(Failure::NotAsked(reason)),
                    Body::Raw => self.run_raw(case, &backend),
                    Body::Here(run) => caught(|| run(&context)),
                };
                (outcome, Some(context))
            }
            Err(Absent::Unavailable(reason) | Absent::Broken(reason)) => (Err(Failure::Failed(reason)), None),
        };
        failing.end();
        over();
        let afterwards = match (&outcome, context) {
            (Err(Failure::Stuck(why)), _) => Err(why.clone()),
            (_, Some(context)) => text_of(context.recover()),
            // The device could not be opened.
            (_, None) => match self.open() {
                Ok(backend) => text_of(self.context(case, backend).recover()),
                Err(Absent::Unavailable(reason) | Absent::Broken(reason)) => Err(reason),
            },
        };
        let verdict = match outcome {
            Ok(()) => Verdict::Passed,
            Err(Failure::NotAsked(reason)) => Verdict::Skipped(reason),
            Err(Failure::Failed(why) | Failure::Stuck(why)) => Verdict::Failed(why),
        };
        Withstood { verdict, afterwards }
    }
}

fn text_of(outcome: Outcome) -> Result<(), String> {
    outcome.map_err(|failure| failure.text().to_owned())
}
