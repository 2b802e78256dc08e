//! PyTorch's own `MemoryTracker` on our files.

use std::path::Path;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, GIB, KIB, MIB};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::{Feed, TrackerStats};
use libtest_mimic::{Failed, Trial};

use super::python::run;
use super::with_pytorch;

/// The path of its code in PyTorch's sources.
const CODE: &str = "torch/distributed/_tools/memory_tracker.py";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("tracker::its_summary_of_our_file_is_ours", summary_of_ours),
        trial("tracker::its_summary_of_its_own_file_is_ours", summary_of_its_own),
        trial("tracker::what_it_saves_of_our_file_is_read", saved_again),
    ]
}

/// Creates a trial whose `body` gets the file with PyTorch's code.
fn trial(name: &str, body: fn(&Path) -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || with_pytorch(|sources| body(&sources.join(CODE))))
}

/// Returns what PyTorch prints for a file, and the run that it saves again.
fn loaded(code: &Path, file: &Path) -> Result<(String, TrackerStats), Failed> {
    let folder = tempfile::tempdir()?;
    let saved = folder.path().join("saved.pickle");
    let arguments = [code.as_os_str(), file.as_os_str(), saved.as_os_str(), "20".as_ref(), "3".as_ref()];
    let printed = run(include_str!("tracker.py"), &arguments)?;
    Ok((printed, TrackerStats::load(saved)?))
}

fn printed_by_ours(stats: &TrackerStats) -> String {
    format!("{}\n{}\n", stats.summary(), stats.summary_top(3))
}

/// Records a run with amounts of all magnitudes, equal amounts, retries and markers, on a device that was in use
/// before.
fn recorded() -> Result<TrackerStats, Failed> {
    let sim = Accelerator::new(Sim::new(GIB), 0, AllocatorConfig::default())?;
    let stream = sim.default_stream();
    let before = sim.allocate(7 * MIB, stream)?;
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Automatic)?;
    tracker.forward_start();
    let mut kept = Vec::new();
    for (layer, bytes) in [1, 513, 100 * KIB, 3 * MIB, 700 * MIB + 1, 513, 5].into_iter().enumerate() {
        let _module = tracker.scope(&format!("layers.{layer}.forward"));
        kept.push(sim.allocate(bytes, stream)?);
        tracker.operator("addmm");
    }
    tracker.forward_backward_boundary();
    while let Some(last) = kept.pop() {
        drop(last);
        tracker.operator("backward");
    }
    drop(sim.allocate(800 * MIB, stream)?); // requires releasing cached memory
    drop(before);
    tracker.operator("end");
    tracker.stop()?;
    let stats = tracker.stats();
    assert_eq!((stats.num_alloc_retries, stats.operators.len()), (1, 23));
    Ok(stats)
}

fn summary_of_ours(code: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("run.pickle");
    let stats = recorded()?;
    stats.save_pytorch(&file)?;
    assert_eq!(loaded(code, &file)?.0, printed_by_ours(&stats));
    Ok(())
}

fn summary_of_its_own(code: &Path) -> Result<(), Failed> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pytorch/tiny_transformer.tracker.pickle");
    let stats = TrackerStats::load(&file)?;
    let (printed, saved) = loaded(code, &file)?;
    assert_eq!(printed, printed_by_ours(&stats));
    assert_eq!(saved, stats);
    Ok(())
}

/// The saved file equals ours except for the fields that PyTorch does not have.
fn saved_again(code: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("run.pickle");
    let stats = recorded()?;
    stats.save_pytorch(&file)?;
    let (_, saved) = loaded(code, &file)?;
    assert_eq!(saved.operators[0].name, "start_monitor");
    assert_eq!(Some(saved.operators[0].memory), stats.start);
    for (saved, ours) in saved.operators[1..].iter().zip(&stats.operators) {
        assert_eq!((&saved.name, saved.memory), (&ours.name, ours.memory));
    }
    assert_eq!(saved.operators.len(), stats.operators.len() + 1);
    let markers: Vec<_> = saved.markers.iter().map(|marker| (marker.name.as_str(), marker.position)).collect();
    assert_eq!(markers, [("fw_start", 1), ("fw_bw_boundary", 15)]);
    assert_eq!(saved.num_alloc_retries, stats.num_alloc_retries);
    Ok(())
}
