use std::io::Write;
use std::process::ExitCode;

use accelerator_core::Accelerator;
use clap::Args;

use crate::backends::{Choice, Job, Offered};
use crate::failure::Failure;

/// What to run.
#[derive(Args)]
pub struct Arguments {
    /// The backend to test
    #[arg(long, value_enum, default_value = "host")]
    backend: Choice,
    /// Only the cases whose name contains this, as C33 or stream
    filter: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let filter = arguments.filter.clone();
    let plan = arguments.backend.conformance();
    let report = plan.run(&libtest_mimic::Arguments { filter, ..Default::default() });
    let mut out = std::io::stdout();
    if let Some(subject) = arguments.backend.run(Subject) {
        writeln!(out, "{subject}")?;
    }
    write!(out, "{report}")?;
    if report.cases.is_empty() {
        return Err(Failure::NoCase(arguments.filter.clone().unwrap_or_default()));
    }
    Ok(report.exit_code())
}

/// What the suite ran on, in the driver's words.
struct Subject;

impl Job for Subject {
    type Outcome = Option<String>;

    fn with<B: Offered>(self) -> Option<String> {
        let accelerator = Accelerator::<B>::open(0).ok()?;
        let properties = accelerator.properties();
        Some(format!("on {}: {} ({})", accelerator.device(), properties.name, properties.driver))
    }
}
