//! The operations whose instructions are counted.

use accelerator_cli::Backends;
use accelerator_cli::commands::{self, Command};
use clap::Parser;

use super::{Result, facade};

/// The scenarios of `accel bench`, which implements them, their warm-up and the counted function.
const SCENARIOS: [&str; 7] = ["small", "large", "lifo", "random", "xstream", "shared", "stats"];

/// Those that are also measured under other settings.
pub(crate) const UNDER_SETTINGS: [&str; 5] = ["small", "large", "lifo", "random", "xstream"];

/// These settings, each with the name of the group.
const SETTINGS: [(&str, &str); 2] = [("expandable", "expandable_segments:True"), ("compact", "policy:compact")];

/// Returns the names of all operations, in the order of the file.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let scenarios = SCENARIOS.iter().map(|name| format!("bench/{name}"));
    let under_settings =
        SETTINGS.iter().flat_map(|(group, _)| UNDER_SETTINGS.iter().map(move |name| format!("{group}/{name}")));
    scenarios.chain(under_settings).chain(facade::CALLS.iter().map(|(name, _)| format!("facade/{name}")))
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
    let under_settings = SETTINGS.iter().find_map(|(group, settings)| {
        let scenario = operation.strip_prefix(group)?.strip_prefix('/')?;
        Some((scenario, settings))
    });
    if let Some((scenario, settings)) = under_settings {
        return bench(scenario, times, &["--conf", settings]);
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
