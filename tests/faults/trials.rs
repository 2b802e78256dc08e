//! The trials: each fault on each driver, and each driver without a fault.

use std::collections::BTreeSet;
use std::env;

use accelerator_conformance::unavailable;
use libtest_mimic::{Completion, Failed, Trial};

use crate::drivers::Driver;
use crate::fault::{PLANTED, Planted};

/// How often each fault must be caught; by default once. The simulated drivers have another order of work in each run.
const RUNS: &str = "ACCELERATOR_FAULTS_RUNS";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("names_are_unique", names_are_unique)];
    for driver in Driver::ALL {
        let name = format!("{}::no_fault", driver.name());
        trials.push(long(driver, Trial::ignorable_test(name, move || on(driver, no_fault))));
        for planted in PLANTED.iter().filter(|planted| planted.drivers.contains(&driver)) {
            let name = format!("{}::{}", driver.name(), planted.name());
            let trial = Trial::ignorable_test(name, move || on(driver, |driver| caught(planted, driver)));
            trials.push(long(driver, trial));
        }
    }
    trials
}

/// Marks trials on simulated drivers, which together take too long for a plain `cargo test`. `.ci/run` runs them, in
/// release.
fn long(driver: Driver, trial: Trial) -> Trial {
    match driver {
        Driver::Host => trial,
        Driver::Cuda | Driver::Xpu => trial.with_kind("long, runs with --ignored").with_ignored_flag(true),
    }
}

fn on(driver: Driver, run: impl FnOnce(Driver) -> Result<(), Failed>) -> Result<Completion, Failed> {
    match driver.missing() {
        Some(reason) => Ok(Completion::ignored_with(unavailable(driver.name(), &reason)?)),
        None => run(driver).map(|()| Completion::Completed),
    }
}

fn names_are_unique() -> Result<(), Failed> {
    let names: BTreeSet<String> = PLANTED.iter().map(Planted::name).collect();
    assert_eq!(names.len(), PLANTED.len());
    assert!(names.len() >= 60, "{} faults", names.len());
    Ok(())
}

/// Without a fault, all cases pass that catch one.
fn no_fault(driver: Driver) -> Result<(), Failed> {
    let of_driver = PLANTED.iter().filter(|planted| planted.drivers.contains(&driver));
    let cases: BTreeSet<u32> = of_driver.map(|planted| planted.case).collect();
    let cases: Vec<u32> = cases.into_iter().collect();
    let output = driver.child(&cases, 1)?.output()?;
    let text = text(&output);
    match output.status.success() && !text.contains("FAILED") {
        true => Ok(()),
        false => Err(format!("without a fault: {}\n{text}", output.status).into()),
    }
}

/// The case of the fault fails in each run, and its message names the method.
fn caught(planted: &Planted, driver: Driver) -> Result<(), Failed> {
    let runs: u32 = env::var(RUNS).map_or(Ok(1), |runs| runs.parse())?;
    for run in 1..=runs {
        let output = driver.child_with(&planted.name(), planted.case, run)?.output()?;
        let text = text(&output);
        let failed = |why: &str| Err(format!("run {run}: {why}: {}\n{text}", output.status).into());
        if output.status.success() {
            return failed(&format!("case {} does not catch the fault", planted.case));
        }
        let Some(message) = message(&text, planted.case) else {
            return failed("no message names the case");
        };
        if !message.contains(planted.message) {
            return failed(&format!("the message is not `{}`", planted.message));
        }
    }
    Ok(())
}

/// Returns what follows the name of the case on its line of the report, or of what is printed at a signal.
fn message(output: &str, case: u32) -> Option<&str> {
    let number = format!("{case:02}_");
    let mut names = output.match_indices("::").filter_map(|(at, _)| output[at + 2..].lines().next());
    names.find(|name| name.starts_with(|letter: char| letter.is_ascii_uppercase()) && name[1..].starts_with(&number))
}

fn text(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
