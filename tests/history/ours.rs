//! Replays with history recording on the simulated device.

use std::collections::HashMap;

use accelerator_cli::replay::{Outcome, PlainOutput, Replayer, Segments, Setup};
use accelerator_cli::trace::{Line, Op, Source};
use accelerator_conformance::{Controls, Sim};
use accelerator_core::{
    Accelerator, ContextsOf, Device, DeviceProperties, GIB, History, HistoryAction, HistoryEntry, Recording,
    TraceAction,
};
use libtest_mimic::Failed;

/// The result of a replay.
pub(crate) struct Replayed {
    pub(crate) history: History,
    /// The trace's number for each stream.
    pub(crate) numbers: HashMap<u32, u32>,
    pub(crate) device: Device,
    pub(crate) properties: DeviceProperties,
}

/// Replays the trace with at most this many history entries.
pub(crate) fn replay(trace: String, max_entries: usize) -> Result<Replayed, Failed> {
    let mut lines = Source::from_bytes("the trace", trace)?;
    let mut setup = Setup::default();
    let first = setup.take_from(&mut lines)?;
    let device = Sim::new(setup.capacity.unwrap_or(16 * GIB));
    let accelerator = Accelerator::new(device, 0, setup.config)?;
    let recording = Recording { max_entries, contexts: ContextsOf::State, capture: None };
    accelerator.allocator().record_history(Some(recording));
    let mut replayer = Replayer::new(accelerator, false);
    for line in first.into_iter().map(Ok).chain(lines) {
        replayer.step(&line?)?;
    }
    let history = accelerator.allocator().history();
    let Outcome::Snapshot(segments) = replayer.step(&Line { number: 0, op: Op::Snapshot })? else {
        return Err("no snapshot".into());
    };
    let numbers = segments.streams;
    replayer.end()?;
    let (device, properties) = (accelerator.device(), accelerator.properties().clone());
    Ok(Replayed { history, numbers, device, properties })
}

/// Formats the history and the segments like PyTorch's in `data/history`.
pub(crate) fn lines(replayed: &Replayed) -> Vec<String> {
    let Replayed { history, numbers, .. } = replayed;
    let entries = history.entries.iter().filter_map(|entry| line(entry, numbers)).collect();
    let mut lines = sorted_completions(entries);
    let mut output = PlainOutput::new(Vec::new(), false);
    let (snapshot, streams) = (history.snapshot.clone(), numbers.clone());
    let outcome = Outcome::Snapshot(Box::new(Segments { pool: None, snapshot, streams, base: Sim::BASE }));
    output.write(0, &outcome).expect("a string accepts everything");
    let text = String::from_utf8(output.finish().expect("a string takes all")).expect("ASCII");
    lines.extend(text.lines().filter(|line| !line.starts_with('@') && *line != "end").map(str::to_owned));
    lines
}

fn line(entry: &HistoryEntry, numbers: &HashMap<u32, u32>) -> Option<String> {
    let HistoryEntry { action, address, size, stream, mem_pool: _, time: _, context: _ } = entry;
    let place = address.wrapping_sub(Sim::BASE);
    let HistoryAction::Trace(action) = action else { return None };
    let place = match action {
        TraceAction::Snapshot => 0,
        TraceAction::OutOfMemory { device_free } => *device_free,
        _ => place,
    };
    Some(format!("{} {place:#x} {size} {}", action.name(), numbers[&stream.get()]))
}

/// Sorts completions. PyTorch completes several at once in the order of a hash table; the recorded lines are sorted as
/// here, except completions directly after their own `free_requested`.
fn sorted_completions(lines: Vec<String>) -> Vec<String> {
    const COMPLETED: &str = "free_completed ";
    let mut sorted: Vec<String> = Vec::with_capacity(lines.len());
    let mut run = 0; // how many of the last lines form a run
    for line in lines {
        let block = line.strip_prefix(COMPLETED);
        let requested = sorted.last().and_then(|last| last.strip_prefix("free_requested "));
        let belongs = block.is_some() && (run > 0 || block != requested);
        if !belongs {
            let end = sorted.len();
            sorted[end - run..].sort();
            run = 0;
        } else {
            run += 1;
        }
        sorted.push(line);
    }
    let end = sorted.len();
    sorted[end - run..].sort();
    sorted
}
