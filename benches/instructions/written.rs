//! The recorded counts in the repository.

use std::fmt;
use std::fs;

use libtest_mimic::Failed;

use super::Result;

pub(crate) const FILE: &str = "benches/instructions.txt";
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

pub(crate) const ADVICE: &str =
    "write the new count: cargo bench -p accelerator-benches --bench instructions -- --write";

const HEAD: &str = "\
# Instructions per operation. `cargo bench -p accelerator-benches --bench instructions` compares them with new counts.
# Written by that command with `-- --write`, on x86-64 with valgrind and glibc 2.36 (Debian 12). Do not edit.
";

/// The tolerated relative difference between a new count and the recorded one.
const TOLERANCE: f64 = 0.05;

/// Operations with their instructions, in the order of the file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Written(pub(crate) Vec<(String, f64)>);

impl Written {
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string(PATH).map_err(|error| format!("{FILE}: {error}: {ADVICE}"))?;
        Self::parsed(&text)
    }

    fn parsed(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entry = |line: &str| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        };
        let entries = lines.map(|line| {
            entry(line).ok_or_else(|| format!("{FILE}: `{line}` is not an operation and its count: {ADVICE}").into())
        });
        entries.collect::<Result<_>>().map(Self)
    }

    pub(crate) fn write(&self) -> Result<()> {
        Ok(fs::write(PATH, self.to_string())?)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn of(&self, operation: &str) -> Option<f64> {
        self.0.iter().find(|(name, _)| name == operation).map(|(_, count)| *count)
    }

    /// Compares a new count with the recorded one.
    ///
    /// # Errors
    /// The change, and what to do about it.
    pub(crate) fn compare(&self, operation: &str, counted: f64) -> Result<(), String> {
        let Some(written) = self.of(operation) else {
            return Err(format!("{counted:.1} instructions, but {FILE} has no count: {ADVICE}"));
        };
        let change = (counted / written - 1.0) * 100.0;
        let found = format!("{counted:.1} instructions, but {FILE} has {written:.1}: {change:+.1} %");
        if counted > written * (1.0 + TOLERANCE) {
            return Err(format!("{found}. Make it cheaper; or if the cost is justified, {ADVICE}"));
        }
        if counted < written * (1.0 - TOLERANCE) {
            return Err(format!("{found}. To keep this gain, {ADVICE}"));
        }
        Ok(())
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        write!(f, "{HEAD}")?;
        self.0.iter().try_for_each(|(name, count)| writeln!(f, "{name:width$} {count:9.1}"))
    }
}

pub(crate) fn over_5_percent_either_way_fail() -> Result<(), Failed> {
    let written = Written(vec![("pair".to_owned(), 200.0)]);
    for fits in [190.0, 200.0, 210.0] {
        written.compare("pair", fits)?;
    }
    for (counted, change, what) in [(211.0, "+5.5 %", "cheaper"), (189.0, "-5.5 %", "keep this gain")] {
        let error = written.compare("pair", counted).expect_err("over 5 %");
        assert!(error.contains(change) && error.contains(what) && error.contains(ADVICE), "{error}");
    }
    assert!(written.compare("another", 1.0).is_err_and(|error| error.contains("no count")));
    Ok(())
}

pub(crate) fn the_file_reads_as_it_was_written() -> Result<(), Failed> {
    let written = Written(vec![("bench/small".to_owned(), 605.0), ("facade/memory_stats".to_owned(), 12_345.6)]);
    assert_eq!(Written::parsed(&written.to_string())?, written);
    for wrong in ["small", "small many", "small 1 2", "small 1\n\nlarge 2"] {
        assert!(Written::parsed(wrong).is_err(), "{wrong:?}");
    }
    Ok(())
}
