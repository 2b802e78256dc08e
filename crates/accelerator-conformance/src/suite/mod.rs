//! The suite: which cases run on a backend, and what is known about those that do not.

mod plan;
mod report;
mod requirement;
mod simulated;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::process::ExitCode;

use accelerator_core::Backend;
use libtest_mimic::{Arguments, Trial};

pub use self::plan::{Plan, PlannedCase};
pub use self::report::{CaseReport, Group, Report, Verdict};
pub use self::requirement::unavailable;
use crate::erased::Opener;

/// Something that a backend can do and some cases need.
///
/// Everything else that the cases use is in the backend trait, where a backend has it or does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// Memory holds what is written to it, and copies and fills are done.
    Bytes,
    /// Events with timing tell a time that passes.
    Clock,
    /// Work that is submitted is done sooner or later, and events that are asked say so. Drivers that take work without a device
    /// lack this: waiting ends there, and asking never does.
    Execution,
    /// Memory is mapped at addresses of its own. The backend itself says whether it offers that.
    VirtualMemory,
    /// The same memory is mapped at several addresses at once. The backend itself says whether it offers that.
    Aliases,
    /// Work that touches the same bytes never runs at the same time. The backend itself says whether it offers that.
    SerializedConflicts,
}

/// All cases, for one backend.
///
/// ```no_run
/// # use accelerator_conformance::{Capability, Sim, Suite};
/// fn main() -> std::process::ExitCode {
///     Suite::<Sim>::new("sim")
///         .lacks(Capability::Bytes, "the simulated device has addresses only")
///         .main()
/// }
/// ```
#[derive(Debug)]
#[must_use = "run it"]
pub struct Suite<B: Backend> {
    listed: Listed,
    backend: PhantomData<fn() -> B>,
}

/// What a suite is told of its backend.
#[derive(Debug)]
struct Listed {
    name: String,
    opener: Opener,
    lacks: BTreeMap<Capability, String>,
    unsupported: BTreeMap<u32, String>,
    expected_failures: BTreeMap<u32, String>,
}

impl<B: Backend> Suite<B> {
    /// The suite for this backend. Its trials are called `name::B23_segment_edges`, and it is `name` that the
    /// environment variable `ACCELERATOR_REQUIRE` has in its list.
    pub fn new(name: impl Into<String>) -> Self {
        let listed = Listed {
            name: name.into(),
            opener: Opener::of::<B>(),
            lacks: BTreeMap::new(),
            unsupported: BTreeMap::new(),
            expected_failures: BTreeMap::new(),
        };
        Self { listed, backend: PhantomData }
    }

    /// The backend does not have this, for this reason: cases that need it show as ignored.
    pub fn lacks(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.listed.lacks.insert(capability, reason.into());
        self
    }

    /// The case can never pass on this backend, for this reason: it is not run, and shows as ignored.
    pub fn unsupported(mut self, case: u32, reason: impl Into<String>) -> Self {
        self.listed.unsupported.insert(case, reason.into());
        self
    }

    /// The case does not pass yet, for this reason. It is run, and shows as ignored if it fails; passing is a failure,
    /// so that the list shrinks.
    pub fn expected_failure(mut self, case: u32, reason: impl Into<String>) -> Self {
        self.listed.expected_failures.insert(case, reason.into());
        self
    }

    /// The trials alone, for a test binary of your own.
    pub fn trials(self) -> Vec<Trial> {
        self.plan().into_trials()
    }

    /// The trials, to be run together with those of other suites.
    pub fn plan(self) -> Plan {
        Plan::of(self.listed)
    }

    /// The cases, for programs that run them and tell of them themselves, since the test harness prints. A case that
    /// is listed but does not exist is told by the trials alone.
    pub fn cases(self) -> Vec<PlannedCase> {
        plan::cases(self.listed)
    }

    /// Runs the trials that the arguments select.
    pub fn run(self, arguments: &Arguments) -> Report {
        self.plan().run(arguments)
    }

    /// All of a test binary's `main`: reads the arguments of `cargo test`, runs, prints the closing table.
    pub fn main(self) -> ExitCode {
        self.plan().main()
    }
}
