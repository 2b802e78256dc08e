//! What happens to a call before it reaches the driver.

use std::sync::{Mutex, MutexGuard};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::lock;

use super::failures::Failures;
use super::gate::Gates;
use crate::calls::{Call, Calls};

/// Counts and logs calls, blocks them and makes them fail.
#[derive(Debug, Default)]
pub(super) struct Entrance {
    pub(super) calls: Calls,
    log: Mutex<Option<Vec<Call>>>,
    pub(super) failures: Failures,
    pub(super) gates: Gates,
}

impl Entrance {
    /// Counts and logs a call, and waits at its gate.
    pub(super) fn enter(&self, call: Call) {
        self.calls.count(call);
        if let Some(log) = self.log().as_mut() {
            log.push(call);
        }
        self.gates.pass(call);
    }

    /// Like `enter`, for a call that can fail: returns an injected failure.
    pub(super) fn admit(&self, call: Call) -> DriverResult<()> {
        self.enter(call);
        self.failures.check(call)
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Option<Vec<Call>>> {
        lock(&self.log)
    }
}
