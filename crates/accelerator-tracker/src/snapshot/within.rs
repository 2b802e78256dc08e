use std::sync::Arc;

use super::types::{Annotation, DeviceNotes, MemorySnapshot, Segment, Setting, TraceEntry};
use super::visit::{SnapshotVisitor, Stop};
use crate::limits::{Budget, LimitError, Limits};

/// Collects a snapshot as it is visited, as long as it fits into the memory that it may take.
pub struct Within<'s> {
    snapshot: &'s mut MemorySnapshot,
    budget: Budget,
}

impl<'s> Within<'s> {
    /// Adds to a snapshot.
    pub fn new(snapshot: &'s mut MemorySnapshot, limits: Limits) -> Self {
        Self { snapshot, budget: Budget::new(limits.memory) }
    }

    /// Counts a text, unless others have it too: then it was counted with the first of them.
    fn text(&mut self, text: &Arc<str>) -> Result<(), LimitError> {
        const OF_PICKLE_AND_PART: usize = 2;
        let is_first = Arc::strong_count(text) <= OF_PICKLE_AND_PART;
        if is_first { self.budget.charge(text.len() as u64) } else { Ok(()) }
    }

    fn setting_text(&mut self, setting: &Setting) -> Result<(), LimitError> {
        match setting {
            Setting::Text(text) => self.text(text),
            Setting::Flag(_) | Setting::Integer(_) | Setting::Real(_) | Setting::Table(_) => Ok(()),
        }
    }

    fn blocks(&mut self, segment: &Segment) -> Result<(), LimitError> {
        self.budget.charge(size_of_val(&*segment.blocks) as u64)
    }
}

/// Notes and settings are few, and their texts are counted where they are read.
impl SnapshotVisitor for Within<'_> {
    fn notes(&mut self, notes: DeviceNotes) -> Result<(), Stop> {
        self.snapshot.notes(notes)
    }

    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        self.snapshot.setting(name, setting)
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
        self.budget.charge((entry.other.capacity() * size_of::<(Arc<str>, Setting)>()) as u64)?;
        match self.snapshot.device_traces.last_mut() {
            Some(history) => Ok(self.budget.push(history, entry)?),
            None => Ok(()),
        }
    }
}
