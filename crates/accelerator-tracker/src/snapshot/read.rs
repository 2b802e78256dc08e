use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use super::types::{Annotation, DeviceNotes, MemorySnapshot, Segment, Setting, TraceEntry};
use super::visit::{SnapshotVisitor, Stop, visit_with};
use crate::file::FileError;
use crate::limits::{ALLOCATION, Budget, LimitError, Limits};

const BUFFER: usize = 1 << 18;

impl MemorySnapshot {
    /// Reads a file written by [`write`](Self::write) or by `torch.cuda.memory._dump_snapshot` of this or an older
    /// PyTorch. Code in the file is never run. The default [`Limits`] apply.
    ///
    /// # Errors
    /// [`FileError`]. For another kind of file, the message says what the file seems to be.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::read_with(path, Limits::default())
    }

    /// Like [`read`](Self::read), with these limits.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, limits: Limits) -> Result<Self, FileError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| FileError::io(path, "opened", error))?;
        let mut collector = Collector::new(limits);
        visit_with(BufReader::with_capacity(BUFFER, file), path, &mut collector, limits)?;
        Ok(collector.snapshot)
    }
}

/// Collects a snapshot as it is visited, within a memory limit.
pub struct Collector {
    /// The parts that were visited so far.
    pub snapshot: MemorySnapshot,
    budget: Budget,
}

impl Collector {
    /// Creates an empty collector.
    pub fn new(limits: Limits) -> Self {
        Self { snapshot: MemorySnapshot::default(), budget: Budget::new(limits.memory) }
    }

    /// Counts a string, unless it is shared: then it was counted with the first part that contains it.
    fn text(&mut self, text: &Arc<str>) -> Result<(), LimitError> {
        const OF_PICKLE_AND_PART: usize = 2;
        let is_first = Arc::strong_count(text) <= OF_PICKLE_AND_PART;
        if is_first { self.budget.charge(text.len() as u64 + 2 * ALLOCATION) } else { Ok(()) }
    }

    fn setting_text(&mut self, setting: &Setting) -> Result<(), LimitError> {
        match setting {
            Setting::Text(text) => self.text(text),
            Setting::Flag(_) | Setting::Integer(_) | Setting::Real(_) | Setting::Table(_) => Ok(()),
        }
    }

    fn blocks(&mut self, segment: &Segment) -> Result<(), LimitError> {
        self.budget.charge(size_of_val(&*segment.blocks) as u64 + ALLOCATION)
    }
}

/// Notes and settings are not counted here: they are few, and their strings are counted where they are read.
impl SnapshotVisitor for Collector {
    fn notes(&mut self, notes: DeviceNotes) -> Result<(), Stop> {
        self.snapshot.notes.push(notes);
        Ok(())
    }

    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        self.snapshot.settings.push((name.to_owned(), setting));
        Ok(())
    }

    fn annotation(&mut self, annotation: Annotation) -> Result<(), Stop> {
        self.text(&annotation.stage)?;
        self.text(&annotation.name)?;
        Ok(self.budget.push(&mut self.snapshot.annotations, annotation)?)
    }

    fn segment(&mut self, segment: Segment) -> Result<(), Stop> {
        self.blocks(&segment)?;
        Ok(self.budget.push(&mut self.snapshot.segments, segment)?)
    }

    fn alias(&mut self, alias: Segment) -> Result<(), Stop> {
        self.blocks(&alias)?;
        Ok(self.budget.push(&mut self.snapshot.aliases, alias)?)
    }

    fn history(&mut self, _: u32) -> Result<(), Stop> {
        Ok(self.budget.push(&mut self.snapshot.device_traces, Vec::new())?)
    }

    fn entry(&mut self, _: u32, entry: TraceEntry) -> Result<(), Stop> {
        self.text(&entry.user_metadata)?;
        self.text(&entry.compile_context)?;
        for (key, value) in &entry.other {
            self.text(key)?;
            self.setting_text(value)?;
        }
        self.budget.charge((entry.other.capacity() * size_of::<(Arc<str>, Setting)>()) as u64 + ALLOCATION)?;
        match self.snapshot.device_traces.last_mut() {
            Some(history) => Ok(self.budget.push(history, entry)?),
            None => Ok(()),
        }
    }
}
