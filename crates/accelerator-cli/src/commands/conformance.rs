use std::io::Write;
use std::process::ExitCode;

use accelerator_conformance::{Sim, Suite};
use accelerator_host::Host;
use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// What to run.
#[derive(Args)]
pub struct Arguments {
    /// The backend to test
    #[arg(long, value_enum, default_value = "host")]
    backend: Backend,
    /// Only the cases whose name contains this, as C33 or stream
    filter: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Backend {
    /// The host.
    Host,
    /// The simulated device.
    Sim,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let plan = match arguments.backend {
        Backend::Host => Suite::<Host>::new("host").plan(),
        Backend::Sim => Sim::suite().plan(),
    };
    let filter = arguments.filter.clone();
    let report = plan.run(&libtest_mimic::Arguments { filter, ..Default::default() });
    write!(std::io::stdout(), "{report}")?;
    if report.cases.is_empty() {
        return Err(Failure::NoCase(arguments.filter.clone().unwrap_or_default()));
    }
    Ok(report.exit_code())
}
