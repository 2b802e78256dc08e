use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use accelerator_conformance::{Opened, Opener, PlannedCase, Report, Verdict};
use accelerator_core::backend_kit::lock;
use accelerator_core::printable;
use clap::Args;

use crate::backends::{Backends, USUAL};
use crate::console::printable_lines;
use crate::failure::Failure;
use crate::parallel::on_threads;

/// The arguments of `accel conformance`.
#[derive(Args)]
pub struct Arguments {
    /// The backend to test
    #[arg(long, default_value = USUAL)]
    backend: String,
    /// Run only the cases whose name contains this text, such as C33 or stream
    filter: Option<String>,
}

pub(super) fn run(arguments: &Arguments, backends: &Backends) -> Result<ExitCode, Failure> {
    let backend = backends.named(&arguments.backend)?;
    arguments.run(backend.cases(), backend.opener())
}

impl Arguments {
    fn run(&self, all: Vec<PlannedCase>, opener: Opener) -> Result<ExitCode, Failure> {
        let filter = self.filter.as_deref().unwrap_or_default();
        let (chosen, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|case| case.trial().contains(filter));
        if chosen.is_empty() {
            return Err(Failure::NoCase(filter.to_owned()));
        }
        let report = told(chosen, others.len())?;
        let mut out = io::stdout().lock();
        if let Some(subject) = subject(opener) {
            writeln!(out, "{subject}")?;
        }
        write!(out, "{}", printable_lines(&report.to_string()))?;
        Ok(report.exit_code())
    }
}

/// Runs the cases and reports each as soon as it is done, like the test harness. The harness itself would panic if its
/// output could not be written.
fn told(cases: Vec<PlannedCase>, filtered_out: usize) -> Result<Report, Failure> {
    let started = Instant::now();
    let width = cases.iter().map(|case| case.trial().chars().count()).max().unwrap_or(0);
    let cases_are = if cases.len() == 1 { "case" } else { "cases" };
    writeln!(io::stdout(), "\nrunning {} {cases_are}", cases.len())?;
    let done = Mutex::new(Vec::with_capacity(cases.len()));
    on_threads(cases.into_iter(), |case: PlannedCase| {
        let report = case.run();
        let verdict = match &report.verdict {
            Verdict::Passed => "ok".to_owned(),
            Verdict::Failed(_) => "FAILED".to_owned(), // the report says why
            other => format!("ignored ({})", printable(&other.to_string())),
        };
        writeln!(io::stdout(), "test {:<width$} ... {verdict}", report.trial)?;
        lock(&done).push(report);
        Ok(())
    })?;
    let report = Report::of(done.into_inner().unwrap_or_else(PoisonError::into_inner));
    writeln!(
        io::stdout(),
        "\nresult: {}. {} passed; {} failed; {} ignored; {filtered_out} filtered out; finished in {:.2} s\n",
        if report.has_failed() { "FAILED" } else { "ok" },
        report.passed(),
        report.failed(),
        report.ignored(),
        started.elapsed().as_secs_f64()
    )?;
    Ok(report)
}

/// Returns the device that the suite ran on, as its driver describes it.
fn subject(opener: Opener) -> Option<String> {
    let Opened { device, properties, .. } = opener.accelerator(0).ok()?;
    Some(format!("on {device}: {} ({})", printable(&properties.name), printable(&properties.driver)))
}
