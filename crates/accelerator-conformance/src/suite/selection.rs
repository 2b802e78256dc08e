//! Which trials of a plan run, and how.

use libtest_mimic::Arguments;

/// Selects trials of a [`Plan`](super::Plan), as the arguments of `cargo test` do. By default all of them run.
///
/// ```
/// use accelerator_conformance::{Selection, Sim};
///
/// let report = Sim::suite().run(&Selection::default().only("B18").quiet());
/// assert_eq!((report.passed(), report.failed()), (2, 0)); // under both policies
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it is for `Plan::run`"]
pub struct Selection(Arguments);

impl Selection {
    /// Selects only trials whose names contain this text.
    pub fn only(mut self, text: impl Into<String>) -> Self {
        self.0.filter = Some(text.into());
        self
    }

    /// Leaves out trials whose names contain this text. It may be called several times.
    pub fn without(mut self, text: impl Into<String>) -> Self {
        self.0.skip.push(text.into());
        self
    }

    /// Sets how many trials run at the same time.
    pub fn threads(mut self, threads: usize) -> Self {
        self.0.test_threads = Some(threads);
        self
    }

    /// Prints one character per trial instead of one line.
    pub fn quiet(mut self) -> Self {
        self.0.quiet = true;
        self
    }

    /// The arguments of the process, which are those of `cargo test`. Wrong ones end the process with a message.
    pub(super) fn of_process() -> Self {
        Self(Arguments::from_args())
    }

    pub(super) fn arguments(&self) -> &Arguments {
        &self.0
    }
}
