//! The crate `accelerator-tracker`: histories with stacks and scopes, and the memory tracker.

use std::error::Error;
use std::path::Path;

use accelerator::Buffer;
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::history::{self, HistoryOptions};
use accelerator_tracker::snapshot::MemorySnapshot;
use accelerator_tracker::tracker::{Feed, TrackerStats, scope};

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    history_in_a_file(&folder.path().join("history.pickle"))?;
    memory_by_operator(&folder.path().join("run.pickle"))
}

fn history_in_a_file(path: &Path) -> Result<(), Box<dyn Error>> {
    history::record_memory_history(HistoryOptions::default(), None)?;
    let module = scope("fc1.forward");
    drop(Buffer::allocate(1, None)?);
    drop(module);
    history::dump_snapshot(path)?;
    history::stop_memory_history(None)?;

    let entries = &MemorySnapshot::read(path)?.device_traces[0];
    let frames = entries.iter().flat_map(|entry| entry.frames.iter());
    assert!(frames.map(|frame| &*frame.name).any(|name| name == "fc1.forward"));
    Ok(())
}

fn memory_by_operator(path: &Path) -> Result<(), Box<dyn Error>> {
    let tracker = MemoryTracker::new(None)?;
    tracker.start_monitor(Feed::Automatic)?;
    let module = tracker.scope("fc1.forward");
    drop(Buffer::allocate(1, None)?);
    drop(module);
    tracker.stop()?;
    tracker.save_pytorch(path)?;
    assert_eq!(TrackerStats::load(path)?.operators[0].name, "fc1.forward.allocate_0");
    Ok(())
}
