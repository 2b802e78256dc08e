use std::path::{Path, PathBuf};

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig};

use super::setting::Setting;
use crate::failure::Failure;
use crate::replay::{MEMORY_OF_ALLOCATION, Outcome, Replayer};
use crate::trace::{Line, Op, Source};

/// The memory that a line needs, in bytes.
const MEMORY_OF_LINE: u64 = 64;

/// The maximum number of replays that run at the same time.
const REPLAYS: u64 = 8;

/// The requests of a program, stored to be replayed many times.
pub(crate) struct Trace {
    /// Its name in messages.
    source: String,
    /// Its name in tables: the file name without extensions.
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
    /// The settings that it was recorded with, if known.
    pub(crate) recorded: Option<Setting>,
    /// The number of lines after the first request that were ignored.
    pub(crate) left_out: usize,
}

impl Trace {
    /// Reads the lines of a trace that describe the program. Lines that only print are ignored. So are the settings,
    /// the size of the device and the failures of its driver (`conf`, `capacity`, `fail_mallocs`), since the comparison
    /// varies them.
    ///
    /// # Errors
    /// [`Failure`], also for a trace that allocates nothing.
    pub(crate) fn read(mut source: Source) -> Result<Self, Failure> {
        source.charge(MEMORY_OF_LINE, REPLAYS * MEMORY_OF_ALLOCATION);
        let name = source.name().to_owned();
        let mut trace = Self { name: short(&name), source: name, lines: Vec::new(), recorded: None, left_out: 0 };
        let mut recorded: Option<AllocatorConfig> = None;
        for line in source {
            let line = line?;
            match &line.op {
                Op::Conf { settings } => {
                    let updated = recorded.unwrap_or_default().updated(settings);
                    let updated = updated.map_err(|error| Failure::in_line(&trace.source, line.number, error))?;
                    match trace.lines.is_empty() {
                        true => recorded = Some(updated),
                        false => trace.left_out += 1,
                    }
                }
                Op::Capacity { .. } | Op::FailMallocs { .. } => {
                    trace.left_out += usize::from(!trace.lines.is_empty());
                }
                Op::Stats | Op::Snapshot | Op::MemInfo | Op::CacheInfo | Op::Calls => {}
                Op::Pool(op) if op.only_prints() => {}
                // The address holds for the recorded settings alone.
                &Op::AllocAt { id, bytes, stream, .. } => {
                    trace.lines.push(Line { op: Op::Alloc { id, bytes, stream }, ..line });
                }
                Op::Alloc { .. }
                | Op::Free { .. }
                | Op::Record { .. }
                | Op::Hold { .. }
                | Op::Release { .. }
                | Op::Sync
                | Op::EmptyCache
                | Op::ResetPeak
                | Op::ResetAccumulated
                | Op::Fraction { .. }
                | Op::Pool(_)
                | Op::Capture(_) => trace.lines.push(line),
            }
        }
        if !trace.lines.iter().any(|line| matches!(line.op, Op::Alloc { bytes: 1.., .. })) {
            return Err(Failure::NoAllocations(trace.source));
        }
        trace.recorded = recorded.map(as_recorded);
        Ok(trace)
    }

    /// Replaces the recorded settings of the trace.
    pub(crate) fn recorded_with(self, config: AllocatorConfig) -> Self {
        Self { recorded: Some(as_recorded(config)), ..self }
    }

    /// Returns the number of lines that are allocator operations.
    pub(super) fn operations(&self) -> u64 {
        let is_operation = |op: &Op| matches!(op, Op::Alloc { .. } | Op::Free { .. } | Op::Record { .. });
        self.lines.iter().filter(|line| is_operation(&line.op)).count() as u64
    }

    /// Creates a replay on a new simulated device.
    ///
    /// # Errors
    /// Errors of the library.
    pub(super) fn replayer(&self, setting: &Setting, capacity: u64, timed: bool) -> Result<Replayer<Sim>, Failure> {
        let device = Sim::new(capacity);
        let replayer = |device| Ok(Replayer::new(Accelerator::new(device, 0, setting.config)?, timed));
        match setting.maps {
            true => replayer(device),
            false => replayer(device.without_virtual_memory()).map(Replayer::without_pauses),
        }
    }

    /// Replays a line.
    ///
    /// # Errors
    /// [`Failure::Line`].
    pub(super) fn step(&self, replayer: &mut Replayer<Sim>, line: &Line) -> Result<Outcome, Failure> {
        replayer.step(line).map_err(|error| Failure::in_line(&self.source, line.number, error))
    }
}

fn as_recorded(config: AllocatorConfig) -> Setting {
    Setting { name: Setting::RECORDED.to_owned(), config, effect: "", maps: true }
}

/// Returns a file name without its folder and the usual extensions.
fn short(name: &str) -> String {
    const ENDINGS: [&str; 5] = ["zst", "gz", "trace", "pickle", "snapshot"];
    let name = name.strip_suffix(" (bundled)").unwrap_or(name);
    let mut path = PathBuf::from(Path::new(name).file_name().unwrap_or(name.as_ref()));
    while path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
        path.set_extension("");
    }
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_short_names() {
        assert_eq!(short("/data/gpt2.v2.trace.zst"), "gpt2.v2");
        assert_eq!(short("job.snapshot.pickle.gz"), "job");
        assert_eq!(short("standard input"), "standard input");
        assert_eq!(short("gpt2_train (bundled)"), "gpt2_train");
    }
}
