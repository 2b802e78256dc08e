//! The suite on backends on which it cannot run, and with lists of cases that do not pass. Whether it detects faults is
//! tested in `faults`.
//!
//! A run prints, and reads the environment, so each run is a separate process of this binary. An environment variable
//! selects what it runs.

use std::process::{Command, ExitCode};

use accelerator_conformance::{Capability, Sim, Suite};
use accelerator_host::Host;
use libtest_mimic::{Failed, Trial};

const CHILD: &str = "ACCELERATOR_TESTS_SUITE";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("suite::absent_is_ignored_with_the_reason", absent),
        Trial::test("suite::absent_but_required_fails", required),
        Trial::test("suite::expected_failure", expected_failure),
        Trial::test("suite::unexpected_pass_fails", unexpected_pass),
        Trial::test("suite::unsupported_is_not_run", unsupported),
        Trial::test("suite::unknown_case_in_a_list_fails", unknown_case),
    ]
}

/// Runs the suite that the variable names, in a child process.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    let name = std::env::var(CHILD).ok()?;
    Some(match name.as_str() {
        "listed" => listed(),
        _ => Suite::<Host>::new("host").main(), // without a device
    })
}

/// The simulated device with correct and incorrect lists of exceptions.
fn listed() -> ExitCode {
    Suite::<Sim>::new("sim")
        .lacks(Capability::Clock, "no clock")
        .expected_failure(28, "there are no bytes")
        .expected_failure(17, "a mistake")
        .unsupported(18, "not today")
        .unsupported(1_000, "no such case")
        .main()
}

struct Output {
    success: bool,
    text: String,
}

fn run(name: &str, filter: &str, required: &str) -> Result<Output, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CHILD, name).env("ACCELERATOR_REQUIRE", required).env("RUST_BACKTRACE", "0");
    command.env("ACCELERATOR_HOST_DEVICES", "0");
    if !filter.is_empty() {
        command.arg(filter);
    }
    let output = command.output()?;
    Ok(Output { success: output.status.success(), text: String::from_utf8_lossy(&output.stdout).into_owned() })
}

fn passes(output: Output) -> Result<(), Failed> {
    match output.success && !output.text.contains("FAILED") {
        true => Ok(()),
        false => Err(output.text.into()),
    }
}

/// Returns the line of the final table that describes this trial.
fn told(output: &Output, trial: &str) -> Result<String, Failed> {
    let mut lines = output.text.lines().map(str::trim);
    let told = lines.find(|line| line.starts_with(trial) && line.contains(": "));
    told.map(str::to_owned).ok_or_else(|| Failed::from(format!("`{trial}` is not in the table: {}", output.text)))
}

fn absent() -> Result<(), Failed> {
    let output = run("absent", "B17", "cuda,xpu")?;
    assert!(output.text.contains("  not run: 1, ACCELERATOR_HOST_DEVICES is 0"), "{}", output.text);
    assert!(output.text.contains("0 passed; 0 failed; 1 ignored"), "{}", output.text);
    passes(output)
}

fn required() -> Result<(), Failed> {
    let output = run("absent", "B17", "cuda, host")?;
    assert!(!output.success);
    let line = told(&output, "host::B17_")?;
    let reason = "ACCELERATOR_REQUIRE asks for `host`, which is not available: ACCELERATOR_HOST_DEVICES is 0";
    assert!(line.ends_with(&format!("FAILED: {reason}")), "{line}");
    Ok(())
}

fn expected_failure() -> Result<(), Failed> {
    let output = run("listed", "B28", "")?;
    let line = told(&output, "sim::B28_")?;
    assert!(line.ends_with("expected failure: there are no bytes"), "{line}");
    assert!(output.text.contains("0 passed; 0 failed; 2 ignored"), "under both policies: {}", output.text);
    passes(output)
}

fn unexpected_pass() -> Result<(), Failed> {
    let output = run("listed", "B17", "")?;
    assert!(!output.success);
    let line = told(&output, "sim::B17_")?;
    assert!(line.contains("passes, though it is listed as an expected failure (a mistake)"), "{line}");
    Ok(())
}

fn unsupported() -> Result<(), Failed> {
    let output = run("listed", "B18", "")?;
    let line = told(&output, "sim::B18_")?;
    assert!(line.ends_with("unsupported: not today"), "{line}");
    passes(output)
}

fn unknown_case() -> Result<(), Failed> {
    let output = run("listed", "unknown", "")?;
    assert!(!output.success && output.text.contains("case 1000 is listed, but does not exist"), "{}", output.text);
    Ok(())
}
