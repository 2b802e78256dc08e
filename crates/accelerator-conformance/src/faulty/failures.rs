//! Injected failures: which calls fail, and how.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

use super::failing_calls::FailingCalls;
use crate::calls::{Call, failure};

/// The failures that are still due.
#[derive(Debug, Default)]
pub(super) struct Failures {
    own: Mutex<Plan>,
    /// Those that several drivers share.
    shared: OnceLock<Arc<FailingCalls>>,
}

#[derive(Debug, Default)]
struct Plan {
    /// The number of calls up to and including the one that fails; 0 if none fails.
    countdown: u64,
    countdown_kind: Option<DriverErrorKind>,
    /// The next call of each of these fails.
    next: Vec<(Call, DriverErrorKind)>,
    /// The number of allocations that fail for lack of memory.
    allocs: u64,
    lost: bool,
    injected: u64,
}

impl Failures {
    pub(super) fn share(&self, calls: Arc<FailingCalls>) {
        let _ = self.shared.set(calls); // set once, when the driver is made
    }

    pub(super) fn fail_call(&self, n: u64, kind: DriverErrorKind) {
        let mut plan = self.plan();
        plan.countdown = n;
        plan.countdown_kind = Some(kind);
    }

    pub(super) fn fail_next(&self, call: Call, kind: DriverErrorKind) {
        self.plan().next.push((call, kind));
    }

    pub(super) fn fail_allocs(&self, count: u64) {
        self.plan().allocs = count;
    }

    pub(super) fn set_lost(&self, lost: bool) {
        self.plan().lost = lost;
    }

    /// Cancels all failures that have not happened yet.
    pub(super) fn clear(&self) {
        let mut plan = self.plan();
        *plan = Plan { injected: plan.injected, ..Plan::default() };
    }

    /// Returns the number of calls that were made to fail so far.
    pub(super) fn injected(&self) -> u64 {
        self.plan().injected
    }

    /// Checks a call that can fail: returns the error if it is to fail.
    pub(super) fn check(&self, call: Call) -> DriverResult<()> {
        let shared = self.shared.get().and_then(|calls| calls.check());
        let mut plan = self.plan();
        let due = shared.map(|kind| failure(call, kind, "injected failure"));
        let Some(error) = due.or_else(|| plan.due(call)) else { return Ok(()) };
        plan.injected += 1;
        Err(error)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.own)
    }
}

impl Plan {
    fn due(&mut self, call: Call) -> Option<DriverError> {
        if self.lost {
            return Some(failure(call, DriverErrorKind::DeviceLost, "injected loss of the device"));
        }
        if self.countdown > 0 {
            self.countdown -= 1;
            if self.countdown == 0 {
                let kind = self.countdown_kind.unwrap_or(DriverErrorKind::Other);
                return Some(failure(call, kind, "injected failure"));
            }
        }
        if let Some(place) = self.next.iter().position(|(wanted, _)| *wanted == call) {
            let (_, kind) = self.next.remove(place);
            return Some(failure(call, kind, "injected failure"));
        }
        if matches!(call, Call::Alloc | Call::Create) && self.allocs > 0 {
            self.allocs -= 1;
            return Some(failure(call, DriverErrorKind::OutOfMemory, "injected out of memory"));
        }
        None
    }
}
