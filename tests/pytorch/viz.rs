//! `torch.cuda._memory_viz` on snapshots that we wrote. Each of its outputs must equal our own version.

use std::ffi::OsStr;
use std::path::Path;

use accelerator_tracker::snapshot::MemorySnapshot;
use libtest_mimic::{Completion, Failed, Trial};

use super::python::run;
use super::{expected, made, recorded, with_pytorch};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::ignorable_test("viz::memory", || same_text("memory", expected::memory)),
        Trial::ignorable_test("viz::segments", || same_text("segments", expected::segments)),
        Trial::ignorable_test("viz::segsum", || same_text("segsum", expected::segsum)),
        Trial::ignorable_test("viz::trace", || same_text("trace", expected::trace)),
        Trial::ignorable_test("viz::compare", compare),
        Trial::ignorable_test("viz::plots", plots),
    ]
}

fn same_text(command: &'static str, expected: fn(&MemorySnapshot) -> String) -> Result<Completion, Failed> {
    on_snapshots(|sources, file, snapshot| {
        let printed = viz(sources, command, &[file])?;
        // The legend of `segsum` is always the same.
        let printed = printed.split("\nLegend:\n").next().unwrap();
        assert_eq!(printed, expected(snapshot));
        assert!(printed.lines().count() > 4, "{printed}");
        Ok(())
    })
}

fn compare() -> Result<Completion, Failed> {
    on_snapshots(|sources, file, snapshot| {
        let (mut other, with_other) = (snapshot.clone(), file.with_extension("other"));
        other.segments[0].total_size += 1 << 20;
        other.write(&with_other)?;
        let expected = expected::compare(&snapshot.segments[0], &other.segments[0]);
        assert_eq!(viz(sources, "compare", &[file, &with_other])?, expected);
        Ok(())
    })
}

/// The pages contain the file's data. The last line is what remains without the freed blocks.
fn plots() -> Result<Completion, Failed> {
    on_snapshots(|sources, file, snapshot| {
        let printed = viz(sources, "plots", &[file])?;
        let kinds = "'Active Memory Timeline'\n'Active Cached Memory Timeline'\n'Allocator State History'\n";
        let left = printed.lines().last().unwrap();
        assert!(printed.contains(kinds), "{printed}");
        assert_eq!(left.split(' ').count(), snapshot.device_traces.len());
        Ok(())
    })
}

/// Runs a trial on three snapshots: a handmade one, one recorded from our allocator, and one that PyTorch wrote and we
/// wrote again.
fn on_snapshots(trial: impl Fn(&Path, &Path, &MemorySnapshot) -> Result<(), Failed>) -> Result<Completion, Failed> {
    with_pytorch(|sources| {
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pytorch/tiny_transformer.snapshot.pickle");
        let folder = tempfile::tempdir()?;
        let snapshots =
            [("made", made::snapshot()), ("recorded", recorded::snapshot()), ("real", MemorySnapshot::read(real)?)];
        for (name, snapshot) in snapshots {
            let file = folder.path().join(name);
            snapshot.write(&file)?;
            trial(sources, &file, &snapshot)?;
        }
        Ok(())
    })
}

fn viz(sources: &Path, command: &str, files: &[&Path]) -> Result<String, Failed> {
    let viz = sources.join("torch/cuda/_memory_viz.py");
    let mut arguments = vec![viz.as_os_str(), OsStr::new(command)];
    arguments.extend(files.iter().map(|file| file.as_os_str()));
    run(include_str!("viz.py"), &arguments)
}
