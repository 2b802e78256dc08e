//! Counts the instructions of operations with callgrind. A trial fails if a count is more than 5 % above the count in
//! `instructions.txt`. It also fails if a count is more than 5 % below, since an unrecorded gain hides the next loss.
//!
//! `cargo bench -p accelerator-benches --bench instructions` compares the counts. With `-- --write` it writes the file.
//!
//! The program measures itself: it starts callgrind on itself with `-c OPERATION TIMES`, [`operations`] repeats the
//! operation, [`callgrind`] reads the number of instructions, and [`written`] compares it with the file. The count is
//! always the same, regardless of the path, the environment and the load of the machine. If `malloc` is called, it
//! varies by up to half a percent. Callgrind simulates its own processor, so the C library chooses the same functions
//! on any x86-64 with AVX2. Another C library has other functions.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at anything unexpected")]

#[path = "instructions/callgrind.rs"]
mod callgrind;
#[path = "instructions/facade.rs"]
mod facade;
#[path = "instructions/operations.rs"]
mod operations;
#[path = "instructions/written.rs"]
mod written;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use accelerator_conformance::unavailable;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::written::Written;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    // Cargo adds `--bench`, with which only benchmarks of time would run.
    let arguments: Vec<String> = env::args().filter(|argument| argument != "--bench").collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["-c", operation, times] => perform(operation, times),
        ["--write"] => write(),
        _ => return libtest_mimic::run(&Arguments::from_iter(arguments), trials()).exit_code(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(operation: &str, times: &str) -> Result<()> {
    operations::perform(operation, times.parse()?)
}

fn write() -> Result<()> {
    if let Some(reason) = callgrind::missing() {
        return Err(format!("cannot count: {reason}").into());
    }
    let before = Written::read().unwrap_or_default();
    let mut counts = Vec::new();
    for operation in operations::names() {
        let count = callgrind::count(&operation)?;
        match before.of(&operation) {
            Some(was) => println!("{operation}: {count:.1}, was {was:.1}"),
            None => println!("{operation}: {count:.1}, new"),
        }
        counts.push((operation, count));
    }
    Written(counts).write()
}

fn trials() -> Vec<Trial> {
    let of_operations =
        operations::names().map(|operation| Trial::ignorable_test(operation.clone(), move || compare(&operation)));
    [
        Trial::test("the_file_names_these_operations", the_file_names_these_operations),
        Trial::test("a_hit_under_compact_costs_little_more", a_hit_under_compact_costs_little_more),
        Trial::test("over_5_percent_either_way_fail", written::over_5_percent_either_way_fail),
        Trial::test("the_file_reads_as_it_was_written", written::the_file_reads_as_it_was_written),
    ]
    .into_iter()
    .chain(of_operations)
    .collect()
}

/// Compares the recorded counts under `policy:compact` with those of the default before each pool had a warm function
/// of its own, which does not serve that policy.
fn a_hit_under_compact_costs_little_more() -> Result<(), Failed> {
    let written = Written::read()?;
    for (name, default) in operations::UNDER_SETTINGS.into_iter().zip([592.0, 595.0, 881.0, 985.0, 1756.0]) {
        let at_most = match name {
            // The policy splits blocks to the byte, so with random sizes it has more free blocks to merge and to sort.
            "random" => 1.45,
            "large" => 1.29,
            _ => 1.25,
        };
        match written.of(&format!("compact/{name}")).map(|compact| compact / default) {
            Some(ratio) if ratio <= at_most => {}
            ratio => return Err(format!("{name}: {ratio:?} times {default}, expected at most {at_most}").into()),
        }
    }
    Ok(())
}

fn compare(operation: &str) -> Result<Completion, Failed> {
    if let Some(reason) = callgrind::missing() {
        return Ok(Completion::ignored_with(unavailable("valgrind", &reason)?));
    }
    Written::read()?.compare(operation, callgrind::count(operation)?)?;
    Ok(Completion::Completed)
}

fn the_file_names_these_operations() -> Result<(), Failed> {
    let (listed, known): (Vec<_>, Vec<_>) = (Written::read()?.names(), operations::names().collect());
    match listed == known {
        true => Ok(()),
        false => Err(format!("{} has {listed:?} instead of {known:?}: {}", written::FILE, written::ADVICE).into()),
    }
}
