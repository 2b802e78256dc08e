//! The first pass over a snapshot: collects its parts for each device, and counts the memory that they need.

use std::collections::BTreeMap;
use std::sync::Arc;

use accelerator_core::AllocatorConfig;
use accelerator_tracker::limits::{Budget, LimitError};
use accelerator_tracker::snapshot::{Annotation, DeviceNotes, Segment, Setting, SnapshotVisitor, Stop, TraceEntry};

use super::device::chosen;
use super::survey::{DeviceSurvey, Start};
use super::{ConvertError, settings};

/// The memory that a block, segment or range of pages needs, here and in the second pass, in bytes.
pub(super) const MEMORY_OF_PART: u64 = 256;

/// The memory that all other data of a device needs, in bytes.
const MEMORY_OF_DEVICE: u64 = 1024;

/// Everything in a snapshot except its entries.
#[derive(Debug)]
pub(super) struct Survey {
    settings: Vec<(String, Setting)>,
    notes: Vec<DeviceNotes>,
    annotations: Vec<Annotation>,
    left_out: usize,
    devices: BTreeMap<u32, DeviceSurvey>,
    budget: Budget,
}

impl Survey {
    /// The maximum number of annotations that become comments.
    const MOST_ANNOTATIONS: usize = 1 << 16;

    /// Creates a first pass that may use this many bytes of memory.
    pub(super) fn new(memory: u64) -> Self {
        Self {
            settings: Vec::new(),
            notes: Vec::new(),
            annotations: Vec::new(),
            left_out: 0,
            devices: BTreeMap::new(),
            budget: Budget::new(memory),
        }
    }

    /// Updates the data of a device, and counts the added memory.
    fn take(&mut self, device: u32, take: impl FnOnce(&mut DeviceSurvey)) -> Result<(), LimitError> {
        if !self.devices.contains_key(&device) {
            self.budget.charge(MEMORY_OF_DEVICE)?;
        }
        let device = self.devices.entry(device).or_default();
        let before = device.parts();
        take(device);
        let parts = device.parts();
        self.budget.discharge(before.saturating_sub(parts) as u64 * MEMORY_OF_PART);
        self.budget.charge(parts.saturating_sub(before) as u64 * MEMORY_OF_PART)
    }

    /// Returns the start of the history of this device, or of the device with the most entries, and the memory that is
    /// left.
    pub(super) fn start(mut self, wanted: Option<u32>) -> Result<(Start, Budget), ConvertError> {
        let entries = self.devices.iter().map(|(device, survey)| (*device, survey.entries)).collect();
        let (chosen, warning) = chosen(&entries, wanted)?;
        let device = self.devices.remove(&chosen).ok_or(ConvertError::Empty)?;
        let mut warnings: Vec<_> = warning.into_iter().collect();
        if self.left_out > 0 {
            warnings.push(format!("ignored {} annotations", self.left_out));
        }
        let notes = self.notes.into_iter().find(|notes| notes.device == chosen);
        let mut annotations = self.annotations;
        annotations.retain(|annotation| annotation.device == chosen);
        annotations.sort_by_key(|annotation| annotation.time_us);
        let config = match &notes {
            Some(notes) => AllocatorConfig::default().updated(&notes.settings).unwrap_or_else(|error| {
                warnings.push(format!("{error}: ignored"));
                AllocatorConfig::default()
            }),
            None => settings::of_pytorch(&self.settings, &mut warnings),
        };
        Ok((device.start(chosen, notes, config, annotations, warnings), self.budget))
    }
}

impl SnapshotVisitor for Survey {
    fn notes(&mut self, notes: DeviceNotes) -> Result<(), Stop> {
        self.take(notes.device, |_| {})?; // a device without entries is not an error
        self.notes.push(notes);
        Ok(())
    }

    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        self.settings.push((name.to_owned(), setting));
        Ok(())
    }

    fn annotation(&mut self, annotation: Annotation) -> Result<(), Stop> {
        match self.annotations.len() < Self::MOST_ANNOTATIONS {
            true => {
                self.budget.charge((annotation.stage.len() + annotation.name.len()) as u64)?;
                self.annotations.push(annotation);
            }
            false => self.left_out += 1,
        }
        Ok(())
    }

    fn segment(&mut self, segment: Segment) -> Result<(), Stop> {
        let segment = without_free(segment);
        self.budget.charge(segment.blocks.len() as u64 * MEMORY_OF_PART)?;
        Ok(self.take(segment.device, |device| {
            device.private_pools |= segment.pool_id != (0, 0);
            device.segments.push(segment);
        })?)
    }

    fn alias(&mut self, alias: Segment) -> Result<(), Stop> {
        let alias = without_free(alias);
        self.budget.charge(alias.blocks.len() as u64 * MEMORY_OF_PART)?;
        Ok(self.take(alias.device, |device| device.aliases.push(alias))?)
    }

    fn entry(&mut self, device: u32, entry: TraceEntry) -> Result<(), Stop> {
        Ok(self.take(device, |device| device.entry(&entry))?)
    }
}

/// Returns a segment with only its allocated blocks, and without frames. Memory that an alias uses is not included.
fn without_free(segment: Segment) -> Segment {
    let mut blocks = segment.blocks;
    blocks.retain(|block| block.state.is_active());
    blocks.iter_mut().for_each(|block| block.frames = Arc::new([]));
    Segment { blocks, frames: Arc::new([]), ..segment }
}

#[cfg(test)]
mod tests {
    use accelerator_tracker::snapshot::visit;

    use super::*;

    /// Surveys a history that frees `frees` blocks without allocating them. So they existed before.
    fn survey(frees: usize, memory: u64) -> Result<(), String> {
        let free = |address: usize| {
            let address = (address as u64 * 512).to_le_bytes();
            [&b"}(h\x01h\x02h\x03\x8a\x08"[..], &address, b"h\x04K\x01u"].concat()
        };
        let words = b"\x80\x04\x8c\x06actionq\x010\x8c\x0efree_completedq\x020\x8c\x04addrq\x030\x8c\x04sizeq\x040";
        let before = b"}(\x8c\x08segments]\x8c\x0ddevice_traces](](";
        let frees: Vec<_> = (0..frees).flat_map(free).collect();
        let pickle = [&words[..], before, &frees, b"eeu."].concat();
        visit(&*pickle, "a.pickle", &mut Survey::new(memory)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_there_before_a_history_counts() {
        assert_eq!(survey(1000, 1 << 20), Ok(()));
        let refused = "a.pickle: its contents take more than 1.00 MiB of memory";
        assert_eq!(survey(10_000, 1 << 20), Err(refused.to_owned()));
        assert_eq!(survey(10_000, u64::MAX), Ok(()));
    }
}
