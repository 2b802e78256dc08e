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
use std::time::Instant;

use accelerator_conformance::{AnyBackend, Opener, PlannedCase};
use accelerator_core::{Accelerator, AllocatorConfig, Device, Error};
use accelerator_tracker::write_whole;
use clap::Args;

use self::report::{Checked, Report};
use self::section::{Progress, Sections};
use crate::backends::{Choice, Job, Offered};
use crate::failure::Failure;
use crate::kernels::Saxpy;

/// The arguments of `accel verify`.
#[derive(Args)]
pub struct Arguments {
    /// The backend to verify
    #[arg(long, value_enum)]
    backend: Choice,
    /// Where to write the report [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure less, to finish in half a minute instead of minutes
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    arguments.backend.run(arguments)
}

/// The parts of a verification.
struct Subject {
    accelerator: &'static Accelerator<AnyBackend>,
    saxpy: Option<Saxpy<AnyBackend>>,
    cases: Vec<PlannedCase>,
    replays: fn(&'static Accelerator<AnyBackend>, &Progress) -> Checked,
}

impl Job for &Arguments {
    type Outcome = Result<ExitCode, Failure>;

    fn with<B: Offered>(self) -> Self::Outcome {
        self.verify(Subject {
            accelerator: open(Opener::of::<B>())?,
            saxpy: B::SAXPY,
            cases: B::suite().cases(),
            replays: |accelerator, progress| replays::check(accelerator, B::replayed, progress),
        })
    }
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

/// Opens the first device with default settings. The environment is ignored, so that reports can be compared.
fn open(opener: Opener) -> Result<&'static Accelerator<AnyBackend>, Failure> {
    opener.probe().map_err(|why| Error::no_accelerator(opener.kind(), &why))?;
    let device = Device { kind: opener.kind(), index: 0 };
    let backend = opener.open(0).map_err(|source| Error::Driver { device, source })?;
    Ok(Accelerator::new(backend, 0, AllocatorConfig::default())?)
}

fn report(subject: Subject, quick: bool) -> Report {
    let started = Instant::now();
    let Subject { accelerator, saxpy, cases, replays } = subject;
    let facts = subject::facts(accelerator);
    let mut sections = Sections::new();
    sections.run("Conformance", |progress| conformance::check(cases.into_iter().map(PlannedCase::run), progress));
    sections.run("Kernel", move |_| kernel::check(accelerator, saxpy));
    sections.run("Replays", move |progress| replays(accelerator, progress));
    sections.run("Bandwidth", move |progress| bandwidth::measure(accelerator, quick, progress));
    sections.run("Cost of calls", move |progress| cost::measure(accelerator, quick, progress));
    let sections = sections.finish();
    let (device, name) = (accelerator.device(), accelerator.properties().name.clone());
    Report { device, name, facts, quick, took: started.elapsed(), sections }
}
