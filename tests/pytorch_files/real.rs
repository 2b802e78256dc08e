//! Files that PyTorch itself wrote.

use std::path::{Path, PathBuf};

use accelerator_tracker::snapshot::{MemorySnapshot, Setting, TraceAction};
use libtest_mimic::{Completion, Failed, Trial};

use crate::python::{run, with_python};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("real::sums_are_those_of_pytorchs_statistics", sums),
        Trial::ignorable_test("real::python_reads_back_what_pytorch_wrote", read_back),
    ]
}

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pytorch").join(name)
}

fn sums() -> Result<(), Failed> {
    let snapshot = MemorySnapshot::read(data("tiny_transformer.snapshot.pickle"))?;
    let statistics = std::fs::read_to_string(data("tiny_transformer.memory_stats.json"))?;
    let statistic = |name: &str| -> u64 {
        let line = statistics.lines().find(|line| line.contains(&format!("\"{name}\"")));
        let digits: String = line.unwrap().split(':').next_back().unwrap().matches(char::is_numeric).collect();
        digits.parse().unwrap()
    };
    let segments = &snapshot.segments;
    let sum = |size: fn(&accelerator_tracker::snapshot::Segment) -> u64| segments.iter().map(size).sum::<u64>();
    assert_eq!(sum(|segment| segment.total_size), statistic("reserved_bytes.all.current"));
    assert_eq!(sum(|segment| segment.allocated_size), statistic("allocated_bytes.all.current"));
    assert_eq!(sum(|segment| segment.active_size), statistic("active_bytes.all.current"));
    assert_eq!(sum(|segment| segment.requested_size), statistic("requested_bytes.all.current"));
    assert_eq!(segments.len() as u64, statistic("segment.all.current"));
    for segment in segments {
        let blocks: u64 = segment.blocks.iter().map(|block| block.size).sum();
        assert_eq!(blocks, segment.total_size);
    }
    assert_eq!(snapshot.device_traces.len(), 1);
    let count = |action| snapshot.device_traces[0].iter().filter(|entry| entry.action == action).count();
    // Counted with Python.
    assert_eq!(count(TraceAction::Alloc), 1077);
    assert_eq!(count(TraceAction::FreeRequested), 924);
    assert_eq!(count(TraceAction::FreeCompleted), 924);
    assert_eq!(count(TraceAction::SegmentAlloc), 37);
    assert_eq!(snapshot.settings.len(), 11);
    assert_eq!(snapshot.settings[1], ("max_split_size".to_owned(), Setting::Integer(-1)));
    assert_eq!((snapshot.annotations.len(), &*snapshot.annotations[0].stage), (12, "START"));
    assert_eq!(snapshot.notes, []);
    Ok(())
}

/// A file that PyTorch wrote, which we read and wrote, and Python reads: equal in every key except our own.
fn read_back() -> Result<Completion, Failed> {
    with_python("python", || {
        let file = data("tiny_transformer.snapshot.pickle");
        let folder = tempfile::tempdir()?;
        let ours = folder.path().join("ours.pickle");
        let snapshot = MemorySnapshot::read(&file)?;
        snapshot.write(&ours)?;
        assert_eq!(MemorySnapshot::read(&ours)?, snapshot);
        let (theirs, own) = (file.to_str().unwrap(), ours.to_str().unwrap());
        let printed = run(include_str!("same.py"), &[theirs, own])?;
        assert_eq!(printed, "equal\n");
        // Frames are shared, as in PyTorch's file.
        assert!(ours.metadata()?.len() < file.metadata()?.len());
        Ok(())
    })
}
