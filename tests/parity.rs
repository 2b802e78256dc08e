//! Parity with PyTorch: what our allocator prints for a trace equals, line for line, what PyTorch's own printed.
//!
//! The data and the script that makes it are in `data/`. `calls` blocks differ by nature: each allocator has its own
//! driver.
#![allow(clippy::expect_used, clippy::panic, reason = "a test stops at what should not happen")]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use accelerator_cli::replay::{PlainOutput, Replayer, Setup};
use accelerator_cli::trace::Source;
use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, GIB};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let trials = ["oracle", "settings"].into_iter().flat_map(whole_traces).chain(models()).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Traces that come with all that PyTorch printed, placements too.
fn whole_traces(folder: &'static str) -> Vec<Trial> {
    let traces = files(&data().join(folder), ".trace.zst");
    let trial = |(name, path): (String, PathBuf)| {
        Trial::test(format!("{folder}::{name}"), move || {
            let expected = decompressed(&path.with_file_name(format!("{name}.out.zst")))?;
            compare(&expected, &replay(&name, decompressed(&path)?)?)
        })
    };
    traces.into_iter().map(trial).collect()
}

/// Recorded traces of real models, each under several settings: statistics and snapshot at the end.
fn models() -> Vec<Trial> {
    let folder = data().join("models");
    let settings = fs::read_to_string(folder.join("settings.txt")).expect("tests/data/models/settings.txt");
    let mut trials = Vec::new();
    for line in settings.lines() {
        let (setting, ahead) = line.split_once(' ').expect("a name and lines");
        for (file, expected) in files(&folder, &format!(".{setting}.out.zst")) {
            let (folder, ahead) = (folder.clone(), ahead.replace(';', "\n"));
            trials.push(Trial::test(format!("models::{file}::{setting}"), move || {
                let recorded = folder.join(format!("{file}.trace.zst"));
                let trace = match recorded.exists() {
                    true => decompressed(&recorded)?,
                    false => decompressed_bytes(Source::BUNDLED)?,
                };
                let ours = replay(&file, format!("{ahead}\n{trace}\nstats\nsnapshot\n"))?;
                let end = ours.find('@').ok_or("nothing printed")?;
                compare(&decompressed(&expected)?, &ours[end..])
            }));
        }
    }
    trials
}

fn replay(name: &str, trace: String) -> Result<String, Failed> {
    let mut lines = Source::from_bytes(name, trace)?;
    let mut setup = Setup::default();
    let first = setup.take_from(&mut lines)?;
    let device = Sim::new(setup.capacity.unwrap_or(16 * GIB));
    let mut replayer = Replayer::new(Accelerator::new(device, 0, setup.config)?, false);
    let mut output = PlainOutput::new(Vec::new(), true);
    for line in first.into_iter().map(Ok).chain(lines) {
        let line = line?;
        let outcome = replayer.step(&line)?;
        output.write(line.number, &outcome)?;
    }
    Ok(String::from_utf8(output.finish()?)?)
}

/// Compares line by line, `calls` blocks left out.
fn compare(expected: &str, ours: &str) -> Result<(), Failed> {
    let (expected, ours) = (without_calls(expected), without_calls(ours));
    if expected.is_empty() {
        return Err("PyTorch printed nothing: there is nothing to compare with".into());
    }
    for (number, (expected, ours)) in expected.iter().zip(&ours).enumerate() {
        if expected != ours {
            let number = number + 1;
            return Err(format!("line {number} of the output\nPyTorch: {expected}\nours:    {ours}").into());
        }
    }
    match expected.len() == ours.len() {
        true => Ok(()),
        false => Err(format!("PyTorch printed {} lines, ours are {}", expected.len(), ours.len()).into()),
    }
}

fn without_calls(text: &str) -> Vec<&str> {
    let mut in_calls = false;
    let keep = |line: &&str| {
        in_calls = (in_calls && *line != "end") || (line.starts_with('@') && line.ends_with(" calls"));
        !in_calls
    };
    text.lines().filter(keep).collect()
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// The files with this ending, and their names without it.
fn files(folder: &Path, ending: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned(), path))
        })
        .collect();
    assert!(!files.is_empty(), "{} has no {ending} files", folder.display());
    files.sort();
    files
}

fn decompressed(path: &Path) -> Result<String, Failed> {
    decompressed_stream(File::open(path)?)
}

fn decompressed_bytes(bytes: &[u8]) -> Result<String, Failed> {
    decompressed_stream(bytes)
}

fn decompressed_stream(compressed: impl Read) -> Result<String, Failed> {
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(compressed)?.read_to_string(&mut text)?;
    Ok(text)
}
