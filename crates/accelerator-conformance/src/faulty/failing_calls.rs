//! Failures that are planned for all devices of a case together.

use std::sync::{Mutex, MutexGuard};

use accelerator_core::DriverErrorKind;
use accelerator_core::backend_kit::lock;

/// Which calls fail. The first call has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failing {
    /// None.
    #[default]
    Nothing,
    /// This one.
    One(u64),
    /// Both of these.
    Two(u64, u64),
    /// This one and all later ones.
    From(u64),
}

/// Driver calls that fail, counted over all faulty drivers that share this plan. Calls that cannot fail are not
/// counted.
#[derive(Debug)]
pub struct FailingCalls(Mutex<Counted>);

#[derive(Debug)]
struct Counted {
    failing: Failing,
    kind: DriverErrorKind,
    calls: u64,
    has_ended: bool,
}

impl FailingCalls {
    /// Plans failures with this kind of error.
    pub fn new(failing: Failing, kind: DriverErrorKind) -> Self {
        Self(Mutex::new(Counted { failing, kind, calls: 0, has_ended: false }))
    }

    /// Returns the number of calls until now, or until the failures ended.
    pub fn calls(&self) -> u64 {
        self.counted().calls
    }

    /// Makes all later calls succeed, and no longer counts them.
    pub fn end(&self) {
        self.counted().has_ended = true;
    }

    /// Counts a call. Returns the kind of its error if it is to fail.
    pub(super) fn check(&self) -> Option<DriverErrorKind> {
        let mut counted = self.counted();
        if counted.has_ended {
            return None;
        }
        counted.calls += 1;
        let number = counted.calls;
        let fails = match counted.failing {
            Failing::Nothing => false,
            Failing::One(nth) => number == nth,
            Failing::Two(first, second) => number == first || number == second,
            Failing::From(first) => number >= first,
        };
        fails.then_some(counted.kind)
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        lock(&self.0)
    }
}
