//! Our own histories: replaying a history produces the same history.

use accelerator_cli::convert::Options;
use accelerator_core::Snapshot;
use accelerator_tracker::snapshot::{BlockState, MemorySnapshot, TraceAction};
use libtest_mimic::{Failed, Trial};

use crate::lines::{calls, canonical, layout, same, segments, trace_of, without_stale};
use crate::ours::{self, Replayed};
use crate::recorded::{self, Recorded};

/// In these, free blocks may report a different last request. That depends on the order in which neighbours became
/// free, which a history of several streams does not determine.
const OTHER_NEIGHBOURS: [&str; 3] = ["models::gpt2_fsdp_emulated", "expandable::rand_28", "expandable::rand_48"];

/// Under the policy `compact`, these are placed identically.
const IN_PLACE: [&str; 1] = ["models::maskrcnn_train"];

/// The real models that are tested: those with several streams. All nine would take a minute.
const MODELS: [&str; 3] = ["models::gpt2_ddp_buckets", "models::gpt2_fsdp_emulated", "models::maskrcnn_train"];

pub(crate) fn trials() -> Vec<Trial> {
    let is_tried =
        |recorded: &Recorded| !recorded.name.starts_with("models::") || MODELS.contains(&recorded.name.as_str());
    let trial = |recorded: Recorded| {
        Trial::test(format!("replayed::{}", recorded.name), move || {
            let entries = whole(&recorded)?;
            later_half(&recorded, entries)
        })
    };
    let compact =
        |recorded: Recorded| Trial::test(format!("compact::{}", recorded.name), move || under_compact(&recorded));
    // Most other settings have no effect under `compact`.
    let is_compact = |recorded: &Recorded| {
        let is_other = recorded.name.starts_with("settings::") || recorded.name.ends_with("::expandable");
        is_tried(recorded) && !is_other
    };
    let compact = recorded::all().into_iter().filter(is_compact).map(compact);
    let aliased = Trial::test("compact::aliased", aliased);
    let guessed = recorded::all().into_iter().filter(|recorded| recorded.name == "models::bert_finetune");
    let guessed = guessed.map(|recorded| Trial::test("without_notes", move || without_notes(&recorded)));
    recorded::all().into_iter().filter(is_tried).map(trial).chain(compact).chain([aliased]).chain(guessed).collect()
}

/// Information from our notes is reconstructed without them, as for PyTorch's files: what made room on a device that is
/// too small, and the memory fraction used by garbage collection.
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

/// The largest number of entries for which a history is also written to a file. Those of models would take too long.
const MOST_WRITTEN: usize = 10_000;

/// Checks the whole history and returns its number of entries.
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

/// Under the policy `compact`, checks the whole history and one that starts late, when some blocks are in aliases
/// already. If the program makes streams wait, the policy may choose other placements, because no history records these
/// waits. Then only the calls are compared.
fn under_compact(recorded: &Recorded) -> Result<(), Failed> {
    let trace = format!("conf policy:compact\n{}", recorded.trace());
    let original = ours::replay(trace.clone(), usize::MAX)?;
    let again = ours::replay(trace_of(&snapshot(&original), &Options::default())?, usize::MAX)?;
    let (lines, found) = (canonical(&ours::lines(&original)), canonical(&ours::lines(&again)));
    if IN_PLACE.contains(&recorded.name.as_str()) {
        same(&lines, &found)?;
    } else if lines.iter().any(|line| line.starts_with("oom ")) {
        return Ok(()); // which requests fail on a full device depends on placements
    }
    same(&calls(&lines), &calls(&found))?;
    let late = ours::replay(trace, original.history.entries.len() / 2)?;
    let again = ours::replay(trace_of(&snapshot(&late), &Options::default())?, usize::MAX)?;
    as_much_is_served(&late, &again)
}

/// Four of eight blocks, every other one, are freed. A block as large as all four is then placed in an alias.
const ALIASED: &str = "conf policy:compact\nalloc 1 20971520 0\nalloc 2 20971520 0\nalloc 3 20971520 0
alloc 4 20971520 0\nalloc 5 20971520 0\nalloc 6 20971520 0\nalloc 7 20971520 0\nalloc 8 20971520 0
free 2\nfree 4\nfree 6\nfree 8\nalloc 9 83886080 0\nfree 1\nalloc 10 4194304 0\nfree 10\n";

/// A block in an alias is written to the file. When its history is replayed, it is in an alias again, even if the
/// history starts later.
fn aliased() -> Result<(), Failed> {
    let original = ours::replay(ALIASED.to_owned(), usize::MAX)?;
    let told = snapshot(&original);
    let aliases: Vec<_> = told.aliases.iter().flat_map(|alias| &alias.blocks).collect();
    let bytes = |state| -> u64 {
        let blocks = told.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == state).map(|block| block.size).sum()
    };
    assert_eq!(aliases.iter().map(|block| block.size).sum::<u64>(), 80 << 20);
    assert_eq!((bytes(BlockState::Aliased), bytes(BlockState::Allocated)), (80 << 20, 60 << 20));
    let last = |action| told.device_traces[0].iter().rfind(|entry| entry.action == action && entry.size == 80 << 20);
    assert_eq!(last(TraceAction::Alloc).map(|entry| entry.address), Some(aliases[0].address));
    assert!(through_a_file(&told)? == told, "the snapshot read differs from the one written");
    let again = ours::replay(trace_of(&told, &Options::default())?, usize::MAX)?;
    same(&canonical(&ours::lines(&original)), &canonical(&ours::lines(&again)))?;
    assert!(again.history.snapshot == original.history.snapshot, "different segments");
    let late = ours::replay(ALIASED.to_owned(), 4)?;
    let trace = trace_of(&snapshot(&late), &Options::default())?;
    let sizes: Vec<_> = trace.lines().filter(|line| line.starts_with("alloc")).map(str::to_owned).collect();
    let again = ours::replay(trace, usize::MAX)?;
    let summed = |replayed: &Replayed| {
        let Snapshot { segments, aliases, .. } = &replayed.history.snapshot;
        let reserved: u64 = segments.iter().map(|segment| segment.total_size).sum();
        let requested = segments.iter().chain(aliases).map(|segment| segment.requested_size).sum::<u64>();
        (reserved, requested)
    };
    assert_eq!(summed(&late), summed(&again), "{sizes:?}");
    assert!(sizes.iter().any(|line| line.ends_with("83886080 0")), "{sizes:?}");
    Ok(())
}

/// A truncated history: the state before its first entry is reconstructed.
fn later_half(recorded: &Recorded, entries: usize) -> Result<(), Failed> {
    let original = ours::replay(recorded.trace(), entries / 2)?;
    let trace = trace_of(&snapshot(&original), &Options::default())?;
    let again = ours::replay(trace, usize::MAX)?;
    if recorded.name.starts_with("expandable::") {
        return as_much_is_served(&original, &again);
    }
    // The trace numbers streams as they appear in the history, which starts with the state before.
    same(&segments(&canonical(&ours::lines(&original))), &segments(&ours::lines(&again)))
}

/// Checks that about the same bytes are requested. The layout is unknown where expandable segments were switched on and
/// off and their page size changed before the history starts; on a full device, some requests then fail.
fn as_much_is_served(original: &Replayed, again: &Replayed) -> Result<(), Failed> {
    let requested = |replayed: &Replayed| -> u64 {
        let snapshot = &replayed.history.snapshot;
        snapshot.segments.iter().chain(&snapshot.aliases).map(|segment| segment.requested_size).sum()
    };
    let (original, again) = (requested(original), requested(again));
    match original.abs_diff(again) <= original / 10 {
        true => Ok(()),
        false => Err(format!("requested: recorded {original}, replayed {again}").into()),
    }
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
