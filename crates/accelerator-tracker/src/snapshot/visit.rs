use std::io::BufRead;
use std::path::Path;

use super::read::visit_file;
use super::types::{Annotation, DeviceNotes, Segment, Setting, TraceEntry};
use crate::file::FileError;
use crate::limits::Limits;

/// Why a visitor stops.
pub type Stop = Box<dyn std::error::Error + Send + Sync>;

/// Takes the parts of a snapshot as they are read. Each method may stop the reading.
#[expect(unused_variables, reason = "nothing is done with what is not asked for")]
pub trait SnapshotVisitor {
    /// What PyTorch has no place for, of one device. Where a snapshot has it, it comes ahead of everything else.
    ///
    /// # Errors
    /// To stop.
    fn notes(&mut self, notes: DeviceNotes) -> Result<(), Stop> {
        Ok(())
    }

    /// A setting. They come last.
    ///
    /// # Errors
    /// To stop.
    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        Ok(())
    }

    /// A marked time.
    ///
    /// # Errors
    /// To stop.
    fn annotation(&mut self, annotation: Annotation) -> Result<(), Stop> {
        Ok(())
    }

    /// A segment.
    ///
    /// # Errors
    /// To stop.
    fn segment(&mut self, segment: Segment) -> Result<(), Stop> {
        Ok(())
    }

    /// Addresses where memory of segments shows once more: an element of [`MemorySnapshot::aliases`].
    ///
    /// [`MemorySnapshot::aliases`]: super::MemorySnapshot::aliases
    ///
    /// # Errors
    /// To stop.
    fn alias(&mut self, alias: Segment) -> Result<(), Stop> {
        Ok(())
    }

    /// The history of a device begins, which may have no entries.
    ///
    /// # Errors
    /// To stop.
    fn history(&mut self, device: u32) -> Result<(), Stop> {
        Ok(())
    }

    /// The next entry of the history of a device.
    ///
    /// # Errors
    /// To stop.
    fn entry(&mut self, device: u32, entry: TraceEntry) -> Result<(), Stop> {
        Ok(())
    }
}

/// Reads a snapshot, and hands its parts to the visitor one by one. What is in memory meanwhile does not grow with the
/// segments and entries, but for some bytes each: a file of eight gigabytes takes about what the default [`Limits`]
/// allow. `name`: the file, for messages.
///
/// # Errors
/// [`FileError`], for a file of another kind with what it seems to be.
pub fn visit(
    reader: impl BufRead,
    name: impl AsRef<Path>,
    visitor: &mut impl SnapshotVisitor,
) -> Result<(), FileError> {
    visit_with(reader, name, visitor, Limits::default())
}

/// As [`visit`], up to other limits.
///
/// # Errors
/// As [`visit`].
pub fn visit_with(
    reader: impl BufRead,
    name: impl AsRef<Path>,
    visitor: &mut impl SnapshotVisitor,
    limits: Limits,
) -> Result<(), FileError> {
    visit_file(reader, name.as_ref(), visitor, limits)
}
