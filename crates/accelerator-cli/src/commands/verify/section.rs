//! Runs the sections of a report. A section that fails, panics or hangs does not prevent the report.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::report::{Checked, Outcome, Section};

/// The time after which a section counts as hanging. Even on slow devices no section takes this long.
const STUCK: Duration = Duration::from_secs(180);

/// The current work, shown on a terminal, and in the report if the work does not end.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

/// Runs one section after the other.
pub(super) struct Sections {
    progress: Progress,
    stuck: Duration,
    done: Vec<Section>,
    /// The section that did not end. It may hold resources that other sections need.
    hanging: Option<&'static str>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{elapsed}  {prefix}  {wide_msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner())))
    }

    /// Sets the description of the current work.
    pub(super) fn at(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.tick();
    }
}

impl Sections {
    pub(super) fn new() -> Self {
        Self { progress: Progress::new(), stuck: STUCK, done: Vec::new(), hanging: None }
    }

    pub(super) fn run(&mut self, title: &'static str, check: impl FnOnce(&Progress) -> Checked + Send + 'static) {
        let outcome = match self.hanging {
            None => self.outcome(title, check),
            Some(section) => {
                Outcome::NotRun(format!("`{section}` did not end and may hold resources that this section needs"))
            }
        };
        self.done.push(Section { title, outcome });
    }

    pub(super) fn finish(self) -> Vec<Section> {
        self.progress.0.finish_and_clear();
        self.done
    }

    fn outcome(&mut self, title: &'static str, check: impl FnOnce(&Progress) -> Checked + Send + 'static) -> Outcome {
        self.progress.0.set_prefix(title);
        self.progress.at("");
        let (sender, receiver) = mpsc::channel();
        let progress = self.progress.clone();
        let work = move || {
            let checked = catch_unwind(AssertUnwindSafe(|| check(&progress)));
            let _ = sender.send(checked); // the receiver is gone if this took too long
        };
        if let Err(error) = thread::Builder::new().name(title.to_owned()).spawn(work) {
            return Outcome::failed(format!("cannot start a thread: {error}"));
        }
        match receiver.recv_timeout(self.stuck) {
            Ok(Ok(Ok(outcome))) => outcome,
            Ok(Ok(Err(error))) => Outcome::failed(error.to_string()),
            Ok(Err(panic)) => Outcome::failed(format!("panicked: {}", message(panic.as_ref()))),
            Err(RecvTimeoutError::Timeout) => {
                self.hanging = Some(title);
                let at = match self.progress.0.message() {
                    at if at.is_empty() => String::new(),
                    at => format!(", at {at}"),
                };
                Outcome::failed(format!("did not end within {} s{at}", self.stuck.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Outcome::failed("ended without a result".to_owned()),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(section: &Section) -> &str {
        match &section.outcome {
            Outcome::Failed(_, wrong) => &wrong[0],
            other => panic!("{}: {other:?}", section.title),
        }
    }

    #[test]
    fn what_fails_does_not_stop_the_others() {
        let mut sections = Sections::new();
        sections.run("Error", |_| Err("no device".into()));
        sections.run("Panic", |_| panic!("at {}", 7));
        sections.run("Fine", |_| Ok(Outcome::Passed("| a |\n".to_owned())));
        let done = sections.finish();
        assert_eq!(failed(&done[0]), "no device");
        assert_eq!(failed(&done[1]), "panicked: at 7");
        assert_eq!(done[2].outcome, Outcome::Passed("| a |\n".to_owned()));
    }

    #[test]
    fn a_section_that_hangs_is_reported_with_its_place_and_ends_the_run() {
        let mut sections = Sections { stuck: Duration::from_millis(50), ..Sections::new() };
        let (open, gate) = mpsc::channel::<()>();
        sections.run("Hang", move |progress| {
            progress.at("a copy");
            let _ = gate.recv();
            Ok(Outcome::Passed(String::new()))
        });
        sections.run("Next", |_| panic!("must not run"));
        let done = sections.finish();
        assert_eq!(failed(&done[0]), "did not end within 0 s, at a copy");
        let told = "`Hang` did not end and may hold resources that this section needs";
        assert_eq!(done[1].outcome, Outcome::NotRun(told.to_owned()));
        drop(open);
    }
}
