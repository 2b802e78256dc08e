//! Failing calls of any backend's own methods.

use std::marker::PhantomData;
use std::sync::Arc;

use accelerator_conformance::{Failing, FailingCalls, Faulty, PlannedCase, Sim, Suite};
use accelerator_core::{Backend, DriverErrorKind, DriverResult, MIB};

use crate::failing::Driver;

/// What a program's device has.
const MEMORY: u64 = 256 * MIB;
const HOST_MEMORY: u64 = 8 * MIB;

/// A backend whose methods fail.
pub(crate) struct InBackend<B> {
    calls: Arc<FailingCalls>,
    backend: PhantomData<fn() -> B>,
}

/// A backend by its suite.
pub(crate) trait Known: Backend {
    const HAS_BYTES: bool = true;

    fn suite() -> Suite<Self> {
        Suite::new(Self::KIND.name())
    }
}

impl Known for Sim {
    const HAS_BYTES: bool = false;

    fn suite() -> Suite<Self> {
        Sim::suite()
    }
}

impl<B: Known> Driver for InBackend<B> {
    type Backend = Faulty<B>;
    const HAS_BYTES: bool = B::HAS_BYTES;
    /// A lost device comes back when the failures are over.
    const KINDS: &'static [DriverErrorKind] =
        &[DriverErrorKind::Other, DriverErrorKind::OutOfMemory, DriverErrorKind::DeviceLost];

    fn cases() -> Vec<PlannedCase> {
        B::suite().cases()
    }

    fn fail(failing: Failing, kind: DriverErrorKind) -> Arc<Self> {
        Arc::new(Self { calls: Arc::new(FailingCalls::new(failing, kind)), backend: PhantomData })
    }

    fn of_backends(&self) -> &Arc<FailingCalls> {
        &self.calls
    }

    fn over(&self) -> u64 {
        self.calls.end();
        self.calls.calls()
    }

    fn open(&self) -> DriverResult<Faulty<B>> {
        let driver = Faulty::new(B::open(0)?).with_memory(MEMORY).with_failing(Arc::clone(&self.calls));
        driver.set_host_capacity(HOST_MEMORY);
        Ok(driver)
    }

    fn taken() -> [u64; 3] {
        [0; 3] // the faulty driver counts for each device
    }

    fn counted(backend: &Faulty<B>) -> [u64; 2] {
        [(backend.live_allocations() + backend.live_host_allocations()) as u64, backend.misuses()]
    }

    fn may_lack(_: Failing) -> u64 {
        0
    }
}
