//! Recorded traces of real models, replayed on a real driver and on the simulated device. The allocator must behave the
//! same on both.

use std::fs;
use std::path::{Path, PathBuf};

use accelerator_cli::replay::{Outcome as Told, Replayer, Setup};
use accelerator_cli::trace::{BUNDLED, Bundled, Source};
use accelerator_conformance::{Controls, Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Device, GIB, Snapshot, Statistics};
use accelerator_opencl::OpenCl;
use libtest_mimic::{Failed, Trial};

use crate::rig::{Outcome, trial};

/// Device memory and settings: with enough for everything, and with so little that the cache must be released.
const SETUPS: [(u64, &str); 2] = [(16 * GIB, ""), (1_800_000_000, "max_split_size_mb:128")];
/// The number of lines between two comparisons of the statistics.
const STEP: usize = 1_000;

pub(crate) fn trials() -> Vec<Trial> {
    let mut traces: Vec<PathBuf> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/models"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".trace.zst"))
        .collect();
    traces.sort();
    let of_file = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().replace(".trace.zst", "");
        trial(format!("traces::{name}"), move || same(|| Ok(Source::open(&path)?)))
    };
    let bundled = |trace: &'static Bundled| trial(format!("traces::{}", trace.name), || same(|| Ok(trace.source()?)));
    traces.into_iter().map(of_file).chain(BUNDLED.iter().map(bundled)).collect()
}

/// The result of a replay.
struct Ended {
    out_of_memory: Vec<u64>,
    /// The intermediate and the final statistics.
    statistics: Vec<Statistics>,
    snapshot: Snapshot,
}

fn same(source: impl Fn() -> Result<Source, Failed>) -> Outcome {
    SETUPS.into_iter().try_for_each(|(capacity, settings)| {
        let opencl = OpenCl::with_capacity(0, Some(capacity))?;
        let sim = Sim::new(capacity).with_largest_allocation(opencl.properties().largest_allocation);
        compare(&replay(Faulty::new(opencl), settings, source()?)?, &replay(sim, settings, source()?)?)
    })
}

fn compare(opencl: &Ended, sim: &Ended) -> Outcome {
    assert_eq!(opencl.out_of_memory, sim.out_of_memory);
    for (number, (opencl, sim)) in opencl.statistics.iter().zip(&sim.statistics).enumerate() {
        assert_eq!(opencl, sim, "after {} lines", (number + 1) * STEP);
    }
    assert_eq!(opencl.statistics.len(), sim.statistics.len());
    assert_eq!(opencl.snapshot.segments.len(), sim.snapshot.segments.len());
    for (opencl, sim) in opencl.snapshot.segments.iter().zip(&sim.snapshot.segments) {
        assert_eq!(opencl, sim);
    }
    let end = sim.statistics.last().ok_or("there are no lines")?;
    assert!(end.allocation.all.allocated > 0 && !sim.snapshot.segments.is_empty());
    Ok(())
}

fn replay<B: Controls>(device: B, settings: &str, mut lines: Source) -> Result<Ended, Failed> {
    let mut setup = Setup { capacity: None, config: AllocatorConfig::default().updated(settings)? };
    let first = setup.take_from(&mut lines)?;
    assert_eq!(setup.capacity, None, "the trace sets a capacity");
    let mut replayer = Replayer::new(Accelerator::new(device, 0, setup.config)?, false);
    let allocator = replayer.accelerator().allocator();
    let (mut out_of_memory, mut statistics) = (Vec::new(), Vec::new());
    for (number, line) in first.into_iter().map(Ok).chain(lines).enumerate() {
        if let Told::OutOfMemory(id) = replayer.step(&line?)? {
            out_of_memory.push(id);
        }
        if (number + 1) % STEP == 0 {
            statistics.push(allocator.statistics());
        }
    }
    statistics.push(allocator.statistics());
    Ok(Ended { out_of_memory, statistics, snapshot: counted_from_the_first(allocator.snapshot()) })
}

/// Makes addresses relative to the first segment, so that they do not depend on the device.
fn counted_from_the_first(mut snapshot: Snapshot) -> Snapshot {
    let first = snapshot.segments.first().map_or(0, |segment| segment.address);
    for segment in &mut snapshot.segments {
        segment.device = Device { kind: Sim::KIND, index: 0 };
        segment.address -= first;
        segment.blocks.iter_mut().for_each(|block| block.address -= first);
    }
    snapshot
}
