//! The result of a run.

use std::fmt;
use std::process::ExitCode;

use libtest_mimic::Conclusion;

/// A group of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Group {
    /// A: device, stream, event.
    Device,
    /// B: allocation.
    Allocation,
    /// C: streams.
    Streams,
    /// D: out of memory.
    OutOfMemory,
    /// E: cache control.
    CacheControl,
    /// F: expandable segments.
    ExpandableSegments,
    /// G: private memory pools, and captures.
    MemPools,
    /// H: pinned host memory.
    PinnedMemory,
    /// I: statistics.
    Statistics,
    /// K: threads and process.
    Threads,
    /// L: the policy `compact`.
    Compact,
    /// M: the backend itself, without the core.
    Backend,
    /// N: memory between processes.
    Interprocess,
}

impl Group {
    /// All groups, in order.
    pub const ALL: [Self; 13] = [
        Self::Device,
        Self::Allocation,
        Self::Streams,
        Self::OutOfMemory,
        Self::CacheControl,
        Self::ExpandableSegments,
        Self::MemPools,
        Self::PinnedMemory,
        Self::Statistics,
        Self::Threads,
        Self::Compact,
        Self::Backend,
        Self::Interprocess,
    ];

    /// The group's letter in the names of trials.
    pub const fn letter(self) -> char {
        match self {
            Self::Device => 'A',
            Self::Allocation => 'B',
            Self::Streams => 'C',
            Self::OutOfMemory => 'D',
            Self::CacheControl => 'E',
            Self::ExpandableSegments => 'F',
            Self::MemPools => 'G',
            Self::PinnedMemory => 'H',
            Self::Statistics => 'I',
            Self::Threads => 'K',
            Self::Compact => 'L',
            Self::Backend => 'M',
            Self::Interprocess => 'N',
        }
    }

    /// The subject of its cases.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Device => "device, stream, event",
            Self::Allocation => "allocation",
            Self::Streams => "streams",
            Self::OutOfMemory => "out of memory",
            Self::CacheControl => "cache control",
            Self::ExpandableSegments => "expandable segments",
            Self::MemPools => "private pools and captures",
            Self::PinnedMemory => "pinned host memory",
            Self::Statistics => "statistics",
            Self::Threads => "threads and process",
            Self::Compact => "the policy compact",
            Self::Backend => "the backend itself",
            Self::Interprocess => "memory between processes",
        }
    }
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The case passed.
    Passed,
    /// The case failed, or passed although it was listed as an expected failure. Contains the reason.
    Failed(String),
    /// The case failed as expected, for this reason.
    ExpectedFailure(String),
    /// The case is listed as unsupported, for this reason.
    Unsupported(String),
    /// The case was not run, or could not look at what it is about: the backend lacks something that it needs, other
    /// tests cover it, or the driver was done too early to be asked.
    Skipped(String),
    /// The case was not run: the backend is not available on this machine.
    Unavailable(String),
}

/// One case of one suite.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaseReport {
    /// The suite's name.
    pub suite: String,
    /// The case's group.
    pub group: Group,
    /// The case's number.
    pub number: u32,
    /// The trial's name.
    pub trial: String,
    /// The result.
    pub verdict: Verdict,
}

impl CaseReport {
    /// A case of the suite `suite` with this verdict.
    pub fn new(suite: &str, group: Group, number: u32, trial: &str, verdict: Verdict) -> Self {
        Self { suite: suite.to_owned(), group, number, trial: trial.to_owned(), verdict }
    }
}

/// The results of all cases that were run. Displayed as a table by group, followed by a list of cases that did not
/// simply pass.
#[derive(Clone, Debug)]
#[must_use = "it contains the exit code"]
pub struct Report {
    /// The cases, by suite and number.
    pub cases: Vec<CaseReport>,
    /// The test harness's own counts, which include listed cases that do not exist.
    pub(super) conclusion: Conclusion,
}

impl Report {
    /// Makes a report of cases that a program has run itself, in any order.
    pub fn of(mut cases: Vec<CaseReport>) -> Self {
        cases.sort_by(|one, other| (one.number, &one.trial).cmp(&(other.number, &other.trial)));
        let count = |is: fn(&Verdict) -> bool| cases.iter().filter(|case| is(&case.verdict)).count() as u64;
        let num_passed = count(|verdict| matches!(verdict, Verdict::Passed));
        let num_failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
        let num_ignored = cases.len() as u64 - num_passed - num_failed;
        let conclusion = Conclusion { num_filtered_out: 0, num_passed, num_failed, num_ignored, num_measured: 0 };
        Self { cases, conclusion }
    }

    /// Returns success, or the exit code with which `cargo test` fails.
    pub fn exit_code(&self) -> ExitCode {
        self.conclusion.exit_code()
    }

    /// Returns how many trials passed.
    pub fn passed(&self) -> u64 {
        self.conclusion.num_passed
    }

    /// Returns how many trials failed.
    pub fn failed(&self) -> u64 {
        self.conclusion.num_failed
    }

    /// Returns how many trials were ignored: not run, or failed as expected.
    pub fn ignored(&self) -> u64 {
        self.conclusion.num_ignored
    }

    /// Whether any case failed.
    pub fn has_failed(&self) -> bool {
        self.conclusion.has_failed()
    }

    /// Counts the cases of a group in a suite: passed, failed, and ignored (not run, or failed as expected).
    pub fn count(&self, suite: &str, group: Group) -> [usize; 3] {
        let mut counts = [0; 3];
        for case in self.cases.iter().filter(|case| case.suite == suite && case.group == group) {
            counts[match case.verdict {
                Verdict::Passed => 0,
                Verdict::Failed(_) => 1,
                _ => 2,
            }] += 1;
        }
        counts
    }

    fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<_> = self.cases.iter().map(|case| case.suite.as_str()).collect();
        suites.dedup();
        suites
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for suite in self.suites() {
            writeln!(f, "{:<32} {:>7} {:>7} {:>8}", suite, "passed", "failed", "ignored")?;
            for group in Group::ALL {
                let [passed, failed, ignored] = self.count(suite, group);
                if passed + failed + ignored > 0 {
                    let title = format!("{} {}", group.letter(), group.title());
                    writeln!(f, "  {title:<30} {passed:>7} {failed:>7} {ignored:>8}")?;
                }
            }
            // Without a device, all cases give the same reason; it is printed once.
            let (mut unavailable, mut why) = (0, "");
            for case in self.cases.iter().filter(|case| case.suite == suite) {
                match &case.verdict {
                    Verdict::Passed => {}
                    Verdict::Unavailable(reason) => (unavailable, why) = (unavailable + 1, reason),
                    verdict => writeln!(f, "  {}: {verdict}", case.trial)?,
                }
            }
            if unavailable > 0 {
                writeln!(f, "  not run: {unavailable}, {why}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
            Self::ExpectedFailure(reason) => write!(f, "expected failure: {reason}"),
            Self::Unsupported(reason) => write!(f, "unsupported: {reason}"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Unavailable(reason) => write!(f, "not available: {reason}"),
        }
    }
}
