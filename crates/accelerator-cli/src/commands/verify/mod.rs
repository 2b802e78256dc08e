//! `accel verify`: tests and measures a backend on a machine, and reports the results.

mod bandwidth;
mod conformance;
mod cost;
mod kernel;
mod replays;
mod report;
mod section;
mod subject;
mod timing;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use accelerator_conformance::{AnyBackend, PlannedCase};
use accelerator_core::Accelerator;
use accelerator_tracker::write_whole;
use clap::Args;

use self::report::{Checked, Report};
use self::section::{Progress, Sections};
use crate::backends::{Backends, Launch, SIMULATED, simulated};
use crate::failure::Failure;

/// The arguments of `accel verify`.
#[derive(Args)]
pub struct Arguments {
    /// The backend to verify
    #[arg(long)]
    backend: String,
    /// Where to write the report [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure less, to finish in half a minute instead of minutes
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(arguments: &Arguments, backends: &Backends) -> Result<ExitCode, Failure> {
    let backend = Arc::clone(backends.named(&arguments.backend)?);
    let (accelerator, variables) = (backend.accelerator()?, backend.variables());
    let (saxpy, cases) = (backend.saxpy(), backend.cases());
    let replays: Replays = match backend.name() {
        SIMULATED => Box::new(|progress| replays::check(accelerator, |capacity| Ok(simulated(capacity)), progress)),
        _ => Box::new(move |progress| replays::check(accelerator, |capacity| backend.replayed(capacity), progress)),
    };
    arguments.verify(Subject { accelerator, variables, saxpy, cases, replays })
}

type Replays = Box<dyn FnOnce(&Progress) -> Checked + Send>;

/// The parts of a verification.
struct Subject {
    accelerator: &'static Accelerator<AnyBackend>,
    variables: &'static [&'static str],
    saxpy: Option<Box<Launch<AnyBackend>>>,
    cases: Vec<PlannedCase>,
    replays: Replays,
}

impl Arguments {
    fn verify(&self, subject: Subject) -> Result<ExitCode, Failure> {
        let mut has_failed = false;
        let work = |out: &mut dyn Write| {
            let report = report(subject, self.quick);
            has_failed = report.has_failed();
            write!(out, "{report}")
        };
        match &self.output {
            // If the file cannot be written, this fails before the work starts, which takes minutes.
            Some(path) => write_whole(path, work)?,
            None => work(&mut io::stdout())?,
        }
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn report(subject: Subject, quick: bool) -> Report {
    let started = Instant::now();
    let Subject { accelerator, variables, saxpy, cases, replays } = subject;
    let facts = subject::facts(accelerator, variables);
    let mut sections = Sections::new();
    sections.run("Conformance", |progress| conformance::check(cases.into_iter().map(PlannedCase::run), progress));
    sections.run("Kernel", move |_| kernel::check(accelerator, saxpy.as_deref()));
    sections.run("Replays", replays);
    sections.run("Bandwidth", move |progress| bandwidth::measure(accelerator, quick, progress));
    sections.run("Cost of calls", move |progress| cost::measure(accelerator, quick, progress));
    let sections = sections.finish();
    let (device, name) = (accelerator.device(), accelerator.properties().name.clone());
    Report { device, name, facts, quick, took: started.elapsed(), sections }
}
