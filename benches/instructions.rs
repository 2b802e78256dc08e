//! Instructions of an operation, counted by callgrind: a trial fails where there are over 5 % more of them than
//! `instructions.txt` says, and where there are over 5 % fewer, since a gain that is not written down hides the next loss.
//!
//! `cargo bench -p accelerator-benches --bench instructions` compares; with `-- --write` behind it, it writes the file anew.
//!
//! The program counts itself: it starts callgrind on itself with `-c OPERATION TIMES`, [`operations`] does the operation so
//! often, [`callgrind`] reads how many instructions that took, and [`written`] compares them with the file. The number is the
//! same each time, or where `malloc` is called the same to half a percent, whatever the path, the environment and the load of
//! the machine. Callgrind shows the program a processor of its own, so that the C library takes the same functions on any
//! x86-64 with AVX2; another C library has others.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at what should not happen")]

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
    // Cargo adds `--bench`, with which only what measures time would run.
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
        Trial::test("over_5_percent_either_way_fail", written::over_5_percent_either_way_fail),
        Trial::test("the_file_reads_as_it_was_written", written::the_file_reads_as_it_was_written),
    ]
    .into_iter()
    .chain(of_operations)
    .collect()
}

fn compare(operation: &str) -> Result<Completion, Failed> {
    if let Some(reason) = callgrind::missing() {
        return unavailable("valgrind", &reason);
    }
    Written::read()?.compare(operation, callgrind::count(operation)?)?;
    Ok(Completion::Completed)
}

fn the_file_names_these_operations() -> Result<(), Failed> {
    let (listed, known): (Vec<_>, Vec<_>) = (Written::read()?.names(), operations::names().collect());
    match listed == known {
        true => Ok(()),
        false => Err(format!("{} has {listed:?}, and not {known:?}: {}", written::FILE, written::ADVICE).into()),
    }
}
