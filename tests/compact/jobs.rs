//! Recorded jobs with PyTorch's results for them. The data and the script that generates it are in `data/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use accelerator_cli::trace::{Bundled, Source, SourceError};
use libtest_mimic::Failed;

use crate::replayed::{self, Device, Replayed};
use crate::smallest::Requests;

/// A recorded job.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) pytorch: PyTorch,
    /// The trace's file, or `None` if `accel` bundles the trace.
    trace: Option<PathBuf>,
    /// The result on each kind of device.
    replayed: [OnceLock<Result<Replayed, String>>; 3],
    /// The smallest device of each kind over the live bytes.
    smallest: [OnceLock<Result<f64, String>>; 3],
}

/// Final statistics of PyTorch's own allocator, with expandable segments and unlimited memory.
#[derive(Clone, Copy)]
pub(crate) struct PyTorch {
    /// Peak bytes.
    pub(crate) requested: u64,
    pub(crate) device_calls: u64,
}

/// Returns the jobs that other tests use, too.
pub(crate) fn models() -> Vec<Job> {
    of("models")
}

/// Returns the jobs that only this test uses.
pub(crate) fn jobs() -> Vec<Job> {
    of("jobs")
}

fn of(set: &str) -> Vec<Job> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(set);
    let figures = fs::read_to_string(folder.join("expandable.txt")).expect("expandable.txt");
    let job = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, requested, _reserved, device_calls] = words[..] else { panic!("{line}") };
        let figure = |word: &str| word.parse().expect("a number");
        let trace = folder.join(format!("{name}.trace.zst"));
        Job {
            name: name.to_owned(),
            pytorch: PyTorch { requested: figure(requested), device_calls: figure(device_calls) },
            trace: trace.exists().then_some(trace),
            replayed: Default::default(),
            smallest: Default::default(),
        }
    };
    let jobs: Vec<_> = figures.lines().filter(|line| !line.starts_with('#')).map(job).collect();
    let traces =
        fs::read_dir(&folder).expect("a folder").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for trace in traces.filter_map(|file| file.strip_suffix(".trace.zst").map(str::to_owned)) {
        assert!(jobs.iter().any(|job| job.name == trace), "{set}/expandable.txt has no {trace}");
    }
    jobs
}

impl Job {
    /// Returns our allocator's result, computed once.
    pub(crate) fn replayed(&self, device: Device) -> Result<&Replayed, Failed> {
        let replayed = self.replayed[device as usize].get_or_init(|| {
            let replayed = self.source().map_err(Failed::from).and_then(|trace| replayed::replay(trace, device));
            replayed.map_err(|error| error.message().unwrap_or_default().to_owned())
        });
        replayed.as_ref().map_err(Failed::from)
    }

    /// Returns the size of the smallest device over the live bytes, computed once.
    pub(crate) fn smallest_over_live(&self, device: Device, worst: f64) -> Result<f64, Failed> {
        let smallest = self.smallest[device as usize].get_or_init(|| {
            let requests = self.source().map_err(Failed::from).and_then(Requests::read);
            let smallest = requests.and_then(|requests| requests.smallest_over_live(device, worst));
            smallest.map_err(|error| error.message().unwrap_or_default().to_owned())
        });
        smallest.clone().map_err(Failed::from)
    }

    fn source(&self) -> Result<Source, SourceError> {
        match (&self.trace, Bundled::named(&self.name)) {
            (Some(trace), _) => Source::open(trace),
            (None, Some(bundled)) => bundled.source(),
            (None, None) => panic!("there is no trace {}", self.name),
        }
    }
}
