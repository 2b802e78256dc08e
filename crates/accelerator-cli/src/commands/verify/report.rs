use std::error::Error;
use std::fmt;
use std::time::Duration;

use accelerator_core::{Device, printable};

use crate::console::printable_lines;
use crate::markdown::Table;

/// The results for a device.
pub(super) struct Report {
    pub(super) device: Device,
    /// The device name that the driver reports. The name of a simulated device says that it is simulated.
    pub(super) name: String,
    /// The device, the machine and the date, as names and values.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) quick: bool,
    pub(super) took: Duration,
    pub(super) sections: Vec<Section>,
}

pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) outcome: Outcome,
}

/// The result of a section.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// Nothing was wrong. Contains the results as text.
    Passed(String),
    /// Something was wrong. Contains the results and each error.
    Failed(String, Vec<String>),
    /// The section could not be run, for this reason.
    NotRun(String),
}

/// The result of a section. An error is a failure like any other.
pub(super) type Checked = Result<Outcome, Box<dyn Error + Send + Sync>>;

impl Outcome {
    /// Returns `Passed` if nothing was wrong, otherwise `Failed`.
    pub(super) fn of(text: String, wrong: Vec<String>) -> Self {
        match wrong.is_empty() {
            true => Self::Passed(text),
            false => Self::Failed(text, wrong),
        }
    }

    pub(super) fn failed(why: String) -> Self {
        Self::Failed(String::new(), vec![why])
    }
}

impl Report {
    pub(super) fn has_failed(&self) -> bool {
        self.sections.iter().any(|section| matches!(section.outcome, Outcome::Failed(..)))
    }

    fn verdict(&self) -> String {
        let titles = |wanted: fn(&Outcome) -> bool| {
            let sections = self.sections.iter().filter(|section| wanted(&section.outcome));
            sections.map(|section| section.title.to_lowercase()).collect::<Vec<_>>().join(", ")
        };
        let failed = titles(|outcome| matches!(outcome, Outcome::Failed(..)));
        let not_run = titles(|outcome| matches!(outcome, Outcome::NotRun(_)));
        match (failed.as_str(), not_run.as_str()) {
            ("", "") => "all passed".to_owned(),
            ("", not_run) => format!("passed; not run: {not_run}"),
            (failed, "") => format!("FAILED: {failed}"),
            (failed, not_run) => format!("FAILED: {failed}; not run: {not_run}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, name, facts, quick, took, sections } = self;
        writeln!(f, "# accel verify on {device} ({}): {}\n", printable(name), self.verdict())?;
        let mut table = Table::of_words(["", ""]);
        for (name, value) in facts {
            table.add([*name, value]);
        }
        let how = if *quick { " (--quick)" } else { "" };
        table.add(["took", &format!("{:.0} s{how}", took.as_secs_f64().ceil())]);
        write!(f, "{table}")?;
        sections.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, outcome } = self;
        match outcome {
            Outcome::Passed(text) => write!(f, "## {title}: passed\n\n{text}"),
            Outcome::NotRun(why) => writeln!(f, "## {title}: not run\n\n{}", printable_lines(why)),
            Outcome::Failed(text, wrong) => {
                writeln!(f, "## {title}: FAILED\n")?;
                wrong.iter().try_for_each(|what| writeln!(f, "* {}", indented(what)))?;
                if text.is_empty() { Ok(()) } else { write!(f, "\n{text}") }
            }
        }
    }
}

/// Indents multi-line text as an item of a list.
pub(super) fn indented(text: &str) -> String {
    printable_lines(text.trim_end()).replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use accelerator_core::DeviceKind;

    use super::*;

    fn report(outcomes: Vec<Outcome>) -> Report {
        let titles = ["One", "Two", "Three"].into_iter();
        let sections = titles.zip(outcomes).map(|(title, outcome)| Section { title, outcome }).collect::<Vec<_>>();
        let device = Device { kind: DeviceKind::new("abacus"), index: 0 };
        Report {
            device,
            facts: vec![("driver", "fingers".to_owned())],
            name: "beads".to_owned(),
            quick: true,
            took: Duration::ZERO,
            sections,
        }
    }

    fn title(outcomes: Vec<Outcome>) -> (String, bool) {
        let report = report(outcomes);
        (report.to_string().lines().next().unwrap_or_default().to_owned(), report.has_failed())
    }

    #[test]
    fn the_verdict_names_what_failed_and_what_was_not_run() {
        let passed = || Outcome::Passed("| a |\n".to_owned());
        let not_run = || Outcome::NotRun("no kernels".to_owned());
        let failed = || Outcome::failed("why".to_owned());
        let start = "# accel verify on abacus:0 (beads): ";
        for (outcomes, verdict, has_failed) in [
            (vec![passed(), passed()], "all passed", false),
            (vec![passed(), not_run()], "passed; not run: two", false),
            (vec![failed(), passed(), failed()], "FAILED: one, three", true),
            (vec![passed(), failed(), not_run()], "FAILED: two; not run: three", true),
        ] {
            assert_eq!(title(outcomes), (format!("{start}{verdict}"), has_failed));
        }
    }

    #[test]
    fn a_driver_reached_the_terminal_with_what_it_said() {
        const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\u{202e}|beads";
        let outcomes = vec![Outcome::failed(HOSTILE.to_owned()), Outcome::NotRun(HOSTILE.to_owned())];
        let (name, facts) = (HOSTILE.to_owned(), vec![("driver", HOSTILE.to_owned())]);
        let text = Report { name, facts, ..report(outcomes) }.to_string();
        assert_eq!(text.matches(r"\u{1b}[2J\u{9b}31m\u{202e}").count(), 4, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text}");
    }

    #[test]
    fn failures_come_before_the_results() {
        let outcome = Outcome::of("| a |\n".to_owned(), vec!["b\nc".to_owned(), "d".to_owned()]);
        let text = report(vec![outcome, Outcome::of("| e |\n".to_owned(), Vec::new())]).to_string();
        let (_, sections) = text.split_once("## ").unwrap_or_default();
        assert_eq!(sections, "One: FAILED\n\n* b\n  c\n* d\n\n| a |\n\n## Two: passed\n\n| e |\n");
    }
}
