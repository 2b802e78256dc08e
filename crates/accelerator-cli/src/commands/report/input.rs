use std::collections::BTreeMap;
use std::path::Path;

use accelerator_core::AllocatorConfig;
use accelerator_tracker::picture::Profile;
use accelerator_tracker::snapshot::{Collector, MemorySnapshot};
use accelerator_tracker::tracker::TrackerStats;
use accelerator_tracker::{FileError, Limits};

use super::{Arguments, replayed};
use crate::console::warn;
use crate::convert::{Passes, SnapshotFile, chosen};
use crate::failure::Failure;
use crate::replay::Setup;
use crate::trace::Source;

/// The kinds of inputs.
enum Input {
    Trace(Source),
    Snapshot(String, MemorySnapshot),
    Tracker(String, TrackerStats),
}

/// Reads an input of any kind, or the bundled trace if no input is given.
pub(super) fn profile(arguments: &Arguments) -> Result<Profile, Failure> {
    let input = Input::read(arguments.input.as_deref(), arguments.reading.limits())?;
    let name = input.name().to_owned();
    input.check(arguments)?;
    let title = Path::new(&name).file_name().map_or(name.clone(), |name| name.to_string_lossy().into_owned());
    let profile = match input {
        Input::Trace(source) => {
            let config = arguments.conf.map_or_else(AllocatorConfig::from_environment, Ok)?;
            let setup = Setup { capacity: arguments.capacity, config };
            Profile { title, ..replayed::profile(source, setup)? }
        }
        Input::Tracker(_, stats) => Profile::of_tracker(&title, &stats),
        Input::Snapshot(_, snapshot) => {
            let device = device(&snapshot, &name, arguments.device)?;
            Profile::of_snapshot(&title, &snapshot, device)
        }
    };
    let has_segments = profile.moments.iter().any(|moment| !moment.segments.is_empty());
    match profile.samples.is_empty() && !has_segments {
        true => Err(Failure::NothingToShow { name, lacks: "operations" }),
        false => Ok(profile),
    }
}

impl Input {
    fn read(path: Option<&Path>, limits: Limits) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Trace(Source::bundled()?)) };
        let mut source = match SnapshotFile::named(path, limits)? {
            Ok(pickle) => return Self::of_pickle(pickle),
            Err(source) => source,
        };
        if !source.starts(|start| start.starts_with(b"{"))? {
            return Ok(Self::Trace(source));
        }
        let name = source.name().to_owned();
        let stats = TrackerStats::load_from(source.into_rest(), &name, limits)?;
        Ok(Self::Tracker(name, stats))
    }

    /// Reads a snapshot or, if the pickle is not a snapshot, the file of PyTorch's tracker.
    fn of_pickle(mut pickle: SnapshotFile) -> Result<Self, Failure> {
        let name = pickle.name();
        let mut collector = Collector::new(pickle.limits());
        let read = pickle.pass(&mut collector);
        let snapshot = collector.snapshot;
        let no_snapshot = match read {
            Ok(()) => return Ok(Self::Snapshot(name, snapshot)),
            Err(error @ FileError::Content { .. }) if snapshot == MemorySnapshot::default() => error,
            Err(error) => return Err(error.into()),
        };
        let limits = pickle.limits();
        let content = pickle.content().map_err(|error| Failure::Spool { name: name.clone(), error })?;
        match TrackerStats::load_from(content, &name, limits) {
            Ok(stats) => Ok(Self::Tracker(name, stats)),
            // An error at byte 0 means another kind of file; a later one means a broken snapshot.
            Err(error @ FileError::Content { offset: 1.., .. }) => Err(error.into()),
            Err(_) => Err(no_snapshot.into()),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Trace(source) => source.name(),
            Self::Snapshot(name, _) | Self::Tracker(name, _) => name,
        }
    }

    /// Refuses options that have no effect on this input.
    fn check(&self, arguments: &Arguments) -> Result<(), Failure> {
        let (kind, takes_device, takes_setup) = match self {
            Self::Trace(_) => ("a trace", false, true),
            Self::Snapshot(..) => ("a snapshot", true, false),
            Self::Tracker(..) => ("a tracker file", false, false),
        };
        for (option, is_given, is_taken) in [
            ("--device", arguments.device.is_some(), takes_device),
            ("--conf", arguments.conf.is_some(), takes_setup),
            ("--capacity", arguments.capacity.is_some(), takes_setup),
        ] {
            if is_given && !is_taken {
                return Err(Failure::unused(option, self.name(), kind));
            }
        }
        Ok(())
    }
}

/// Returns the requested device, or the one with the longest history.
fn device(snapshot: &MemorySnapshot, name: &str, wanted: Option<u32>) -> Result<u32, Failure> {
    let histories = (0..).zip(&snapshot.device_traces).filter(|(_, history)| !history.is_empty());
    let noted = snapshot.notes.iter().map(|notes| notes.device);
    let segments = snapshot.segments.iter().map(|segment| segment.device);
    let mut entries: BTreeMap<_, _> = noted.chain(segments).map(|device| (device, 0)).collect();
    entries.extend(histories.map(|(device, history)| (device, history.len() as u64)));
    let (device, warning) = chosen(&entries, wanted).map_err(|error| Failure::in_snapshot(name, error))?;
    warning.iter().for_each(|warning| warn(warning));
    Ok(device)
}
