//! Traces with PyTorch's output for each. The data and the scripts that generate it are in `data/`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use accelerator_cli::replay::{PlainOutput, Replayer, Setup};
use accelerator_cli::trace::{Bundled, Source};
use accelerator_conformance::Controls;
use accelerator_core::{Accelerator, GIB};
use libtest_mimic::Failed;

/// A trace and PyTorch's output for it.
pub(crate) struct Recorded {
    pub(crate) name: String,
    trace: PathBuf,
    /// Settings that precede the trace.
    ahead: Option<String>,
    /// Lines appended to the trace. If set, only the output of these lines is compared; with `None`, the trace itself
    /// prints.
    behind: Option<&'static str>,
    expected: PathBuf,
}

/// Returns the traces with complete output of PyTorch, including placements.
pub(crate) fn whole(folder: &str) -> Vec<Recorded> {
    let traces = files(&data().join(folder), ".trace.zst");
    let recorded = |(name, trace): (String, PathBuf)| Recorded {
        expected: trace.with_file_name(format!("{name}.out.zst")),
        name: format!("{folder}::{name}"),
        trace,
        ahead: None,
        behind: None,
    };
    traces.into_iter().map(recorded).collect()
}

/// Returns the traces of real models, each under several settings, with final statistics and snapshot.
pub(crate) fn models() -> Vec<Recorded> {
    of_models().filter(|(is_expandable, _)| !is_expandable).map(|(_, recorded)| recorded).collect()
}

/// Returns everything with expandable segments: the traces of `oracle` again, random ones that switch them on and off,
/// and those of models.
pub(crate) fn expandable() -> Vec<Recorded> {
    let switched_on = whole("oracle").into_iter().map(|classic| Recorded {
        expected: classic.trace.with_extension("").with_extension("expandable.out.zst"),
        name: format!("{}::expandable", classic.name),
        ahead: Some("conf expandable_segments:True".to_owned()),
        ..classic
    });
    let models = of_models().filter(|(is_expandable, _)| *is_expandable).map(|(_, recorded)| recorded);
    switched_on.chain(whole("expandable")).chain(models).collect()
}

/// Returns the traces of models, and whether their settings use expandable segments.
fn of_models() -> impl Iterator<Item = (bool, Recorded)> {
    let folder = data().join("models");
    let settings = fs::read_to_string(folder.join("settings.txt")).expect("tests/data/models/settings.txt");
    let mut all = Vec::new();
    for line in settings.lines() {
        let (setting, ahead) = line.split_once(' ').expect("a name and lines");
        for (file, expected) in files(&folder, &format!(".{setting}.out.zst")) {
            let recorded = Recorded {
                name: format!("models::{file}::{setting}"),
                trace: folder.join(format!("{file}.trace.zst")),
                ahead: Some(ahead.replace(';', "\n")),
                behind: Some("stats\nsnapshot\n"),
                expected,
            };
            all.push((setting.starts_with("expandable"), recorded));
        }
    }
    all.into_iter()
}

impl Recorded {
    /// Checks that the replay of the trace prints the same as PyTorch.
    pub(crate) fn compare(&self, replay: impl Fn(String) -> Result<String, Failed>) -> Result<(), Failed> {
        compare(&self.expected()?, &self.printed(replay)?)
    }

    /// Returns PyTorch's output.
    pub(crate) fn expected(&self) -> Result<String, Failed> {
        decompressed(File::open(&self.expected)?)
    }

    /// Returns the part of the replay's output that is compared.
    pub(crate) fn printed(&self, replay: impl Fn(String) -> Result<String, Failed>) -> Result<String, Failed> {
        let mut trace = self.trace()?;
        if let Some(ahead) = &self.ahead {
            trace.insert_str(0, &format!("{ahead}\n"));
        }
        let Some(behind) = self.behind else { return replay(trace) };
        let mut ours = replay(format!("{trace}\n{behind}"))?;
        let end = ours.find('@').ok_or("nothing printed")?;
        Ok(ours.split_off(end))
    }

    fn trace(&self) -> Result<String, Failed> {
        if self.trace.exists() {
            return decompressed(File::open(&self.trace)?);
        }
        let file = self.trace.file_name().unwrap_or_default().to_string_lossy();
        let name = file.trim_end_matches(".trace.zst");
        decompressed(Bundled::named(name).ok_or_else(|| format!("unknown trace {name}"))?.file)
    }
}

/// Returns our allocator's output for the trace, on a device with this many bytes.
pub(crate) fn replay<B: Controls>(
    trace: String,
    device: impl FnOnce(u64) -> Result<B, Failed>,
) -> Result<String, Failed> {
    let mut lines = Source::from_bytes("the trace", trace)?;
    let mut setup = Setup::default();
    let first = setup.take_from(&mut lines)?;
    let device = device(setup.capacity.unwrap_or(16 * GIB))?;
    let mut replayer = Replayer::new(Accelerator::new(device, 0, setup.config)?, false);
    let mut output = PlainOutput::new(Vec::new(), true);
    for line in first.into_iter().map(Ok).chain(lines) {
        let line = line?;
        let outcome = replayer.step(&line)?;
        output.write(line.number, &outcome)?;
    }
    replayer.end()?;
    Ok(String::from_utf8(output.finish()?)?)
}

/// Compares line by line without the calls of the driver in `calls` blocks, which differ because each allocator has its
/// own driver.
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
        false => Err(format!("PyTorch printed {} lines, ours printed {}", expected.len(), ours.len()).into()),
    }
}

fn without_calls(text: &str) -> Vec<&str> {
    let mut in_calls = false;
    let keep = |line: &&str| {
        in_calls = (in_calls && *line != "end") || (line.starts_with('@') && line.ends_with(" calls"));
        !in_calls || line.starts_with("pool_allocator.")
    };
    text.lines().filter(keep).collect()
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// Returns the files with this extension, and their names without it.
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

fn decompressed(compressed: impl Read) -> Result<String, Failed> {
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(compressed)?.read_to_string(&mut text)?;
    Ok(text)
}
