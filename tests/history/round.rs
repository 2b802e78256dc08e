//! Our own histories: the replay of a history has the same history.

use accelerator_cli::convert::Options;
use accelerator_tracker::snapshot::MemorySnapshot;
use libtest_mimic::{Failed, Trial};

use crate::lines::{canonical, layout, same, segments, trace_of, without_stale};
use crate::ours::{self, Replayed};
use crate::recorded::{self, Recorded};

/// Free blocks of these do not tell the same request as the one that they last served: that depends on the order in which
/// neighbours came free, which a history of several streams leaves open.
const OTHER_NEIGHBOURS: [&str; 1] = ["models::gpt2_fsdp_emulated"];

/// The traces of real models that are tried, those with several streams: all nine would take a minute.
const MODELS: [&str; 3] =
    ["models::gpt2_ddp_buckets", "models::gpt2_fsdp_emulated", "models::maskrcnn_train"];

pub(crate) fn trials() -> Vec<Trial> {
    let is_tried = |recorded: &Recorded| {
        !recorded.name.starts_with("models::") || MODELS.contains(&recorded.name.as_str())
    };
    let trial = |recorded: Recorded| {
        Trial::test(format!("replayed::{}", recorded.name), move || {
            let entries = whole(&recorded)?;
            later_half(&recorded, entries)
        })
    };
    let guessed = recorded::all().into_iter().filter(|recorded| recorded.name == "models::bert_finetune");
    let guessed = guessed.map(|recorded| Trial::test("without_notes", move || without_notes(&recorded)));
    recorded::all().into_iter().filter(is_tried).map(trial).chain(guessed).collect()
}

/// What our notes tell is found out without them, as of PyTorch's files: what made room on a device that is too small, and the
/// memory fraction behind garbage collection.
fn without_notes(recorded: &Recorded) -> Result<(), Failed> {
    let settings = [
        "conf max_split_size_mb:64",
        "conf garbage_collection_threshold:0.6\nfraction 0.9",
        "capacity 9000000000\nconf roundup_power2_divisions:8",
    ];
    for setting in settings {
        let original = ours::replay(format!("{setting}\n{}", recorded.trace()), usize::MAX)?;
        let told = MemorySnapshot { notes: Vec::new(), ..snapshot(&original) };
        let again = ours::replay(trace_of(&told, &Options::default())?, usize::MAX)?;
        let (original, again) = (ours::lines(&original), ours::lines(&again));
        same(&without_stale(layout(&original)), &without_stale(layout(&again)))?;
    }
    Ok(())
}

/// Histories with so many entries at most go through a file: those of models would take too long.
const MOST_WRITTEN: usize = 10_000;

/// The whole history. How many entries it has.
fn whole(recorded: &Recorded) -> Result<usize, Failed> {
    let original = ours::replay(recorded.trace(), usize::MAX)?;
    let entries = original.history.entries.len();
    let told = match snapshot(&original) {
        snapshot if entries <= MOST_WRITTEN => through_a_file(&snapshot)?,
        snapshot => snapshot,
    };
    let trace = trace_of(&told, &Options::default())?;
    let again = ours::replay(trace, usize::MAX)?;
    let (original, again) = (canonical(&ours::lines(&original)), canonical(&ours::lines(&again)));
    let (original, again) = (layout(&original), layout(&again));
    match OTHER_NEIGHBOURS.contains(&recorded.name.as_str()) {
        true => same(&without_stale(original), &without_stale(again))?,
        false => same(original, again)?,
    }
    Ok(entries)
}

/// A history that was cut short: what was there before its first entry is rebuilt.
fn later_half(recorded: &Recorded, entries: usize) -> Result<(), Failed> {
    let original = ours::replay(recorded.trace(), entries / 2)?;
    let trace = trace_of(&snapshot(&original), &Options::default())?;
    let again = ours::replay(trace, usize::MAX)?;
    // The trace numbers streams as they appear in the history, which begins with what was there before.
    same(&segments(&canonical(&ours::lines(&original))), &segments(&ours::lines(&again)))
}

fn through_a_file(snapshot: &MemorySnapshot) -> Result<MemorySnapshot, Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("snapshot.pickle");
    snapshot.write(&file)?;
    Ok(MemorySnapshot::read(&file)?)
}

fn snapshot(replayed: &Replayed) -> MemorySnapshot {
    let mut snapshot = MemorySnapshot::default();
    let properties = &replayed.properties;
    snapshot.add(replayed.device, properties, &replayed.history);
    snapshot
}
