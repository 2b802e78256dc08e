//! Failing calls of a simulated driver.

use std::marker::PhantomData;
use std::sync::Arc;

use accelerator_conformance::{Failing, FailingCalls, PlannedCase, Suite};
use accelerator_core::{DriverErrorKind, DriverResult};

use super::simulated::Simulated;
use crate::failing::Driver;

/// A simulated driver whose functions fail.
pub(crate) struct InDriver<B> {
    /// The calls before.
    before: u64,
    none: Arc<FailingCalls>,
    backend: PhantomData<fn() -> B>,
}

impl<B: Simulated> Driver for InDriver<B> {
    type Backend = B;
    const HAS_BYTES: bool = true;

    fn cases() -> Vec<PlannedCase> {
        Suite::<B>::new(B::KIND.name()).cases()
    }

    fn fail(failing: Failing, kind: DriverErrorKind) -> Arc<Self> {
        let code = if kind == DriverErrorKind::OutOfMemory { B::OUT_OF_MEMORY } else { B::REFUSED };
        let before = B::calls();
        B::seed(0); // so that the calls are the same each time
        match failing {
            Failing::One(nth) => B::fail_at(nth, code),
            Failing::Two(first, second) => [first, second].into_iter().for_each(|nth| B::fail_at(nth, code)),
            Failing::From(first) => B::fail_from(first, code),
            _ => {}
        }
        let none = Arc::new(FailingCalls::new(Failing::Nothing, kind));
        Arc::new(Self { before, none, backend: PhantomData })
    }

    fn of_backends(&self) -> &Arc<FailingCalls> {
        &self.none
    }

    fn over(&self) -> u64 {
        B::clear_faults();
        B::calls() - self.before
    }

    fn open(&self) -> DriverResult<B> {
        B::open(0)
    }

    fn taken() -> [u64; 3] {
        let [_, pages, mappings] = B::live_virtual();
        [B::live().iter().sum(), pages, mappings]
    }

    /// Backends repeat a call that gives memory back, once.
    fn may_lack(failing: Failing) -> u64 {
        match failing {
            Failing::Two(..) => 1,
            Failing::From(_) => u64::MAX,
            _ => 0,
        }
    }
}
