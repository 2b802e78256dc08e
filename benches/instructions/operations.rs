//! What is counted.

use accelerator_cli::commands::{self, Command};
use clap::Parser;

use super::{Result, facade};

/// The scenarios of `accel bench`, which has them, their warm-up and the function that is counted.
const SCENARIOS: [&str; 7] = ["small", "large", "lifo", "random", "xstream", "shared", "stats"];

/// Of all operations, as they stand in the file.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let scenarios = SCENARIOS.iter().map(|name| format!("bench/{name}"));
    scenarios.chain(facade::CALLS.iter().map(|(name, _)| format!("facade/{name}")))
}

/// How often an operation is done to be counted. What the counted function does once is then under a tenth of an
/// instruction an operation. A multiple of the 64 pairs that make a round of `lifo`.
pub(crate) fn times(operation: &str) -> u64 {
    if operation.starts_with("bench/") { 20_480 } else { 2048 }
}

/// Does an operation so often, in a function that callgrind is to count, behind a warm-up.
pub(crate) fn perform(operation: &str, times: u64) -> Result<()> {
    if let Some(scenario) = operation.strip_prefix("bench/") {
        return bench(scenario, times);
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

fn bench(scenario: &str, times: u64) -> Result<()> {
    let Accel { command } = Accel::try_parse_from(["accel", "bench", "-c", scenario, &times.to_string()])?;
    commands::run(command)?;
    Ok(())
}
