//! The suite: which cases run on a backend, and what is known about those that do not.

mod plan;
mod report;
mod requirement;
mod selection;
mod shared;
mod simulated;
mod withstood;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::process::ExitCode;
use std::sync::OnceLock;

use accelerator_core::Backend;

pub use self::plan::{Plan, PlannedCase};
pub use self::report::{CaseReport, Group, Report, Verdict};
pub use self::requirement::unavailable;
pub use self::selection::Selection;
pub use self::withstood::Withstood;
use crate::erased::{AnyBackend, Opener};
use crate::outcome::Outcome;
use crate::raw::{self, Scale};

/// A capability that some cases need and not every backend has.
///
/// Anything else that the cases use is part of the backend trait, so every backend has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Memory keeps what is written to it; copies and fills are performed.
    Bytes,
    /// Events with timing measure real time.
    Clock,
    /// Submitted work completes eventually, and querying its events shows that. Drivers that accept work without having
    /// a device lack this: waiting on them returns, but their events never become complete.
    Execution,
    /// Memory can be mapped at reserved addresses. The backend itself reports whether it offers that.
    VirtualMemory,
    /// The same memory can be mapped at several addresses at once. The backend itself reports whether it offers that.
    Aliases,
    /// Two pieces of work that touch the same bytes never run at the same time. The backend itself reports whether it
    /// offers that.
    SerializedConflicts,
    /// Other processes can import memory. The backend itself reports whether it offers that.
    Interprocess,
    /// The memory that can be imported may come from virtual memory, as that of expandable segments does. The backend
    /// itself reports whether it offers that. If there is no virtual memory, this is not missing.
    InterprocessPages,
    /// Work of streams can be captured in graphs. The backend itself reports whether it offers that.
    Graphs,
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

/// Runs the case with this number on the backend inside the first argument.
type RunRaw = fn(&AnyBackend, u32, &OnceLock<Scale>) -> Outcome;

/// What is known about a suite's backend.
#[derive(Debug)]
struct Listed {
    name: String,
    opener: Opener,
    /// Runs a case of group M.
    raw: RunRaw,
    lacks: BTreeMap<Capability, String>,
    unsupported: BTreeMap<u32, String>,
    expected_failures: BTreeMap<u32, String>,
}

impl<B: Backend> Suite<B> {
    /// Returns the suite for this backend. Its trials are named `name::B23_segment_edges`, and the environment variable
    /// `ACCELERATOR_REQUIRE` lists the backend under `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let listed = Listed {
            name: name.into(),
            opener: Opener::of::<B>(),
            raw: raw::run::<B>,
            lacks: BTreeMap::new(),
            unsupported: BTreeMap::new(),
            expected_failures: BTreeMap::new(),
        };
        Self { listed, backend: PhantomData }
    }

    /// Declares that the backend lacks a capability, for this reason. Cases that need it are ignored.
    pub fn lacks(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.listed.lacks.insert(capability, reason.into());
        self
    }

    /// Declares that the case can never pass on this backend, for this reason. It is not run, and shows as ignored.
    pub fn unsupported(mut self, case: u32, reason: impl Into<String>) -> Self {
        self.listed.unsupported.insert(case, reason.into());
        self
    }

    /// Declares that the case does not pass yet, for this reason. It is run, and shows as ignored if it fails. If it
    /// passes, that is a failure, so that the list shrinks.
    pub fn expected_failure(mut self, case: u32, reason: impl Into<String>) -> Self {
        self.listed.expected_failures.insert(case, reason.into());
        self
    }

    /// Returns the trials as a plan, to be run together with those of other suites.
    pub fn plan(self) -> Plan {
        Plan::of(self.listed)
    }

    /// Returns the cases, for programs that run and report them themselves, since the test harness prints. Listed cases
    /// that do not exist are reported only by the trials.
    pub fn cases(self) -> Vec<PlannedCase> {
        plan::cases(self.listed)
    }

    /// Runs the selected trials, which the test harness prints.
    pub fn run(self, selection: &Selection) -> Report {
        self.plan().run(selection)
    }

    /// Does everything that a test binary's `main` must do: reads the arguments of `cargo test`, runs the trials, and
    /// prints the closing table.
    pub fn main(self) -> ExitCode {
        self.plan().main()
    }
}
