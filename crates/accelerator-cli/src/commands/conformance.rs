use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use crate::backends::Choice;
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
    write!(std::io::stdout(), "{report}")?;
    if report.cases.is_empty() {
        return Err(Failure::NoCase(arguments.filter.clone().unwrap_or_default()));
    }
    Ok(report.exit_code())
}
