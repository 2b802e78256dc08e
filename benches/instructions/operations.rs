//! The operations whose instructions are counted.

use accelerator_cli::Backends;
use accelerator_cli::commands::{self, Command};
use clap::Parser;

use super::{Result, facade};

/// The scenarios of `accel bench`, which implements them, their warm-up and the counted function.
const SCENARIOS: [&str; 7] = ["small", "large", "lifo", "random", "xstream", "shared", "stats"];

/// Those that are also measured under `policy:compact`.
pub(crate) const UNDER_COMPACT: [&str; 5] = ["small", "large", "lifo", "random", "xstream"];

/// Returns the names of all operations, in the order of the file.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let scenarios = SCENARIOS.iter().map(|name| format!("bench/{name}"));
    let under_compact = UNDER_COMPACT.iter().map(|name| format!("compact/{name}"));
    scenarios.chain(under_compact).chain(facade::CALLS.iter().map(|(name, _)| format!("facade/{name}")))
}

/// Returns the number of repetitions of an operation. It is a multiple of the 64 pairs in a round of `lifo`. It is so
/// large that the one-time instructions of the counted function are less than a tenth of an instruction per operation.
pub(crate) fn times(operation: &str) -> u64 {
    if operation.starts_with("facade/") { 2048 } else { 20_480 }
}

/// Repeats an operation after a warm-up, in the function whose instructions callgrind counts.
pub(crate) fn perform(operation: &str, times: u64) -> Result<()> {
    if let Some(scenario) = operation.strip_prefix("bench/") {
        return bench(scenario, times, &[]);
    }
    if let Some(scenario) = operation.strip_prefix("compact/") {
        return bench(scenario, times, &["--conf", "policy:compact"]);
    }
    let call = facade::CALLS.iter().find(|(name, _)| operation.strip_prefix("facade/") == Some(name));
    let (_, call) = call.ok_or_else(|| {
        format!("there is no operation `{operation}`, only {}", names().collect::<Vec<_>>().join(", "))
    })?;
    facade::perform(*call, times)
}

/// The program `accel`.
#[derive(Parser)]
struct Accel {
    #[command(subcommand)]
    command: Command,
}

fn bench(scenario: &str, times: u64, settings: &[&str]) -> Result<()> {
    let times = times.to_string();
    let arguments = [&["accel", "bench"], settings, &["-c", scenario, &times]].concat();
    let Accel { command } = Accel::try_parse_from(arguments)?;
    commands::run(command, &Backends::simulated())?;
    Ok(())
}
