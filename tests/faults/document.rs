//! The table of all faults in the documents.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;

use accelerator_conformance::{Sim, Suite};
use libtest_mimic::{Failed, Trial};

use crate::drivers::Driver;
use crate::fault::{PLANTED, Planted};

const FILE: &str = "docs/reference/planted-faults.md";
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/planted-faults.md");

/// Set to write the file instead of comparing it.
const WRITE: &str = "ACCELERATOR_FAULTS_WRITE";

const HEAD: &str = "\
# Faults that the suite catches

The tests plant each of these faults in the host's driver and in the simulated drivers of CUDA and Level Zero, one at a
time, and run the case beside it ([`tests/faults`](../../tests/faults)). The case must fail in each of three runs, and
its message must contain the words in the last column. Where only some of the drivers can have the fault, they are
named.

The tests write this page: `ACCELERATOR_FAULTS_WRITE=1 cargo test -p accelerator-tests --test faults document`.

| fault | case | message |
|---|---|---|
";

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("document", is_current)]
}

fn is_current() -> Result<(), Failed> {
    let table = table();
    if env::var_os(WRITE).is_some() {
        return Ok(fs::write(PATH, table)?);
    }
    match fs::read_to_string(PATH)? == table {
        true => Ok(()),
        false => Err(format!("{FILE} is old: {WRITE}=1 cargo test -p accelerator-tests --test faults document").into()),
    }
}

fn table() -> String {
    let cases = cases();
    let mut table = HEAD.to_owned();
    for Planted { what, case, message, drivers, .. } in PLANTED {
        let what = what.replace('|', "\\|");
        let only: Vec<&str> = drivers.iter().map(|driver| driver.name()).collect();
        let only = if only.len() < Driver::ALL.len() { format!(" ({})", only.join(", ")) } else { String::new() };
        let name = cases.get(case).map_or("", String::as_str);
        let _ = writeln!(table, "| {what}{only} | {name} | {message} |"); // a string takes everything
    }
    table
}

/// Returns the names of all cases by number.
fn cases() -> BTreeMap<u32, String> {
    let named = Suite::<Sim>::new("sim").cases().into_iter().filter_map(|case| {
        let name = case.trial().split_once("::")?.1.split(' ').next()?;
        let number = name.get(1..)?.split('_').next()?.parse().ok()?;
        Some((number, name.to_owned()))
    });
    named.collect()
}
