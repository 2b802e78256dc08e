//! `accel verify`: everything that a machine can show about a backend, as a report.

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

use accelerator_conformance::PlannedCase;
use accelerator_core::{Accelerator, AllocatorConfig, Device, Error};
use accelerator_tracker::write_whole;
use clap::Args;

use self::report::Report;
use self::section::Sections;
use crate::backends::{Choice, Job, Offered};
use crate::failure::Failure;

/// What to verify, and where to tell it.
#[derive(Args)]
pub struct Arguments {
    /// The backend to verify
    #[arg(long, value_enum)]
    backend: Choice,
    /// Where the report goes [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure less: for half a minute rather than minutes
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    arguments.backend.run(arguments)
}

impl Job for &Arguments {
    type Outcome = Result<ExitCode, Failure>;

    fn with<B: Offered>(self) -> Self::Outcome {
        let accelerator = open::<B>()?;
        let mut has_failed = false;
        let mut work = |out: &mut dyn Write| {
            let report = report::<B>(accelerator, self.quick);
            has_failed = report.has_failed();
            write!(out, "{report}")
        };
        match &self.output {
            // What cannot be written is told before the work, which takes minutes.
            Some(path) => write_whole(path, work)?,
            None => work(&mut io::stdout())?,
        }
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// The first device, with default settings whatever the environment says, so that reports can be compared.
fn open<B: Offered>() -> Result<&'static Accelerator<B>, Failure> {
    B::probe().map_err(|why| Error::no_accelerator(B::KIND, &why))?;
    let device = Device { kind: B::KIND, index: 0 };
    let backend = B::open(0).map_err(|source| Error::Driver { device, source })?;
    Ok(Accelerator::new(backend, 0, AllocatorConfig::default())?)
}

fn report<B: Offered>(accelerator: &'static Accelerator<B>, quick: bool) -> Report {
    let started = Instant::now();
    let facts = subject::facts(accelerator);
    let mut sections = Sections::new();
    sections.run("Conformance", |progress| {
        conformance::check(B::suite().cases().into_iter().map(PlannedCase::run), progress)
    });
    sections.run("Kernel", move |_| kernel::check(accelerator, B::SAXPY));
    sections.run("Replays", move |progress| replays::check(accelerator, B::replayed, progress));
    sections.run("Bandwidth", move |progress| bandwidth::measure(accelerator, quick, progress));
    sections.run("Cost of calls", move |progress| cost::measure(accelerator, quick, progress));
    let sections = sections.finish();
    let (device, name) = (accelerator.device(), accelerator.properties().name.clone());
    Report { device, name, facts, quick, took: started.elapsed(), sections }
}
