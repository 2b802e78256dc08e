//! Histories of PyTorch's own allocator, which contain less than ours: neither when the driver refused memory, nor when
//! the program emptied the cache or changed settings.

use std::path::Path;

use accelerator_cli::convert::Options;
use accelerator_tracker::snapshot::{
    Block, BlockState, MemorySnapshot, PoolKind, Segment, Setting, TraceAction, TraceEntry,
};
use libtest_mimic::{Failed, Trial};

use crate::lines::{canonical, layout, same, trace_of, without_stale};
use crate::ours;
use crate::recorded;

/// The base address of the recordings' simulated device.
const BASE: u64 = 0x7f00_0000_0000;

pub(crate) fn trials() -> Vec<Trial> {
    // A snapshot has only the final settings. When segments became expandable, and when they stopped being so, is not
    // recorded.
    let recorded = recorded::all().into_iter().filter(|recorded| !recorded.name.starts_with("expandable::"));
    let whole = recorded.filter_map(|recorded| Some((recorded.name.clone(), recorded.whole()?)));
    let trial = |(name, text): (String, String)| {
        Trial::test(format!("pytorch::{name}"), move || {
            whole_history(&text)?;
            later_half(&text)
        })
    };
    whole.map(trial).chain([Trial::test("pytorch::tiny_transformer", real_program)]).collect()
}

fn whole_history(text: &str) -> Result<(), Failed> {
    let trace = trace_of(&snapshot(text), &Options::default())?;
    let again = canonical(&ours::lines(&ours::replay(trace, usize::MAX)?));
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    same(&without_stale(layout(&canonical(&lines))), &without_stale(layout(&again)))
}

/// Keeps what PyTorch would with a smaller `max_entries`.
fn later_half(text: &str) -> Result<(), Failed> {
    let all = snapshot(text);
    let entries = &all.device_traces[0];
    let later = MemorySnapshot { device_traces: vec![entries[entries.len() / 2..].to_vec()], ..all.clone() };
    if later.segments.is_empty() && later.device_traces[0].is_empty() {
        return Ok(());
    }
    ends_alike(&later)
}

/// A file that a PyTorch training program wrote, read with the file reader.
fn real_program() -> Result<(), Failed> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pytorch/tiny_transformer.snapshot.pickle");
    ends_alike(&MemorySnapshot::read(file)?)
}

/// Checks that the replay ends with the same reserved and allocated bytes.
fn ends_alike(snapshot: &MemorySnapshot) -> Result<(), Failed> {
    let again = ours::replay(trace_of(snapshot, &Options::default())?, usize::MAX)?.history.snapshot.segments;
    let recorded = snapshot.segments.iter();
    let recorded = recorded.fold((0, 0), |sum, of| (sum.0 + of.total_size, sum.1 + of.allocated_size));
    let replayed = again.iter().fold((0, 0), |sum, of| (sum.0 + of.total_size, sum.1 + of.allocated_size));
    match replayed == recorded {
        true => Ok(()),
        false => Err(format!("(reserved, allocated): recorded {recorded:?}, replayed {replayed:?}").into()),
    }
}

/// Converts the recorded lines to the snapshot that PyTorch writes.
fn snapshot(text: &str) -> MemorySnapshot {
    let mut snapshot = MemorySnapshot { device_traces: vec![Vec::new()], ..MemorySnapshot::default() };
    for line in text.lines() {
        let plain = line.replacen(" expandable ", " ", 1);
        let is_expandable = plain != line;
        let words: Vec<_> = plain.split_whitespace().collect();
        match words.as_slice() {
            ["setting", key, values @ ..] => snapshot.settings.push(((*key).to_owned(), setting(key, values))),
            [
                "segment",
                _,
                "at",
                place,
                "size",
                size,
                "stream",
                stream,
                "pool",
                pool,
                "allocated",
                allocated,
                "active",
                active,
                "requested",
                requested,
                ..,
            ] => {
                snapshot.segments.push(Segment {
                    device: 0,
                    address: BASE + number(place),
                    total_size: number(size),
                    allocated_size: number(allocated),
                    active_size: number(active),
                    requested_size: number(requested),
                    stream: handle(stream),
                    segment_type: if *pool == "small" { PoolKind::Small } else { PoolKind::Large },
                    pool_id: (0, 0),
                    is_expandable,
                    is_paused: false,
                    frames: [].into(),
                    blocks: Vec::new(),
                });
            }
            ["block", offset, "size", size, "requested", requested, state] => {
                let segment = snapshot.segments.last_mut().expect("a segment before its blocks");
                segment.blocks.push(Block {
                    address: segment.address + number(offset.trim_start_matches('+')),
                    size: number(size),
                    requested_size: number(requested),
                    state: match *state {
                        "active_allocated" => BlockState::Allocated,
                        "active_pending_free" => BlockState::PendingFree,
                        _ => BlockState::Inactive,
                    },
                    frames: [].into(),
                });
            }
            [name, place, size, stream] => {
                snapshot.device_traces[0].push(entry(name, number(place), number(size), handle(stream)))
            }
            _ => panic!("{line}"),
        }
    }
    snapshot
}

fn entry(name: &str, place: u64, size: u64, stream: u64) -> TraceEntry {
    let action = match name {
        "alloc" => TraceAction::Alloc,
        "free_requested" => TraceAction::FreeRequested,
        "free_completed" => TraceAction::FreeCompleted,
        "segment_alloc" => TraceAction::SegmentAlloc,
        "segment_free" => TraceAction::SegmentFree,
        "segment_map" => TraceAction::SegmentMap,
        "segment_unmap" => TraceAction::SegmentUnmap,
        "snapshot" => TraceAction::Snapshot,
        "oom" => TraceAction::OutOfMemory { device_free: place },
        _ => panic!("{name}"),
    };
    let address =
        if matches!(action, TraceAction::OutOfMemory { .. } | TraceAction::Snapshot) { 0 } else { BASE + place };
    TraceEntry {
        action,
        address,
        size,
        stream,
        time_us: 0,
        frames: [].into(),
        pool_id: (0, 0),
        user_metadata: "".into(),
        compile_context: "N/A".into(),
        other: Vec::new(),
    }
}

fn setting(key: &str, values: &[&str]) -> Setting {
    match key {
        "max_split_size" => Setting::Integer(values[0].parse().unwrap()),
        "garbage_collection_threshold" => Setting::Real(values[0].parse().unwrap()),
        "expandable_segments" => Setting::Flag(values[0] == "1"),
        "roundup_power2_divisions" => {
            let table = values.iter().enumerate();
            Setting::Table(table.map(|(power, steps)| ((1 << power).to_string(), steps.parse().unwrap())).collect())
        }
        _ => Setting::Text(values.concat().into()),
    }
}

/// Returns the handle by which PyTorch identifies a stream.
fn handle(stream: &str) -> u64 {
    match number(stream) {
        0 => 0,
        number => 0x5600_0000_0000 + number * 64,
    }
}

fn number(word: &str) -> u64 {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => word.parse().unwrap(),
    }
}
