use std::io::BufRead;
use std::path::Path;

use super::fields::Wrong;
use super::passing::{End, Passing};
use super::types::{Annotation, DeviceNotes, Segment, Setting, TraceEntry};
use crate::file::{FileError, fill, seems_to_be};
use crate::limits::Limits;
use crate::pickle::{self, Halt, PickleError, ReadError};

/// Why a visitor stops.
pub type Stop = Box<dyn std::error::Error + Send + Sync>;

/// Receives the parts of a snapshot as they are read. Each method can stop the reading by returning an error.
#[expect(unused_variables, reason = "the default implementations ignore their arguments")]
pub trait SnapshotVisitor {
    /// Receives information on one device for which PyTorch has no place. If a snapshot has it, it comes before
    /// everything else.
    ///
    /// # Errors
    /// Any error stops the reading.
    fn notes(&mut self, notes: DeviceNotes) -> Result<(), Stop> {
        Ok(())
    }

    /// Receives a setting. Settings come last.
    ///
    /// # Errors
    /// Any error stops the reading.
    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        Ok(())
    }

    /// Receives an annotated time.
    ///
    /// # Errors
    /// Any error stops the reading.
    fn annotation(&mut self, annotation: Annotation) -> Result<(), Stop> {
        Ok(())
    }

    /// Receives a segment.
    ///
    /// # Errors
    /// Any error stops the reading.
    fn segment(&mut self, segment: Segment) -> Result<(), Stop> {
        Ok(())
    }

    /// Receives a range of addresses at which memory of segments is mapped a second time: an element of
    /// [`MemorySnapshot::aliases`].
    ///
    /// [`MemorySnapshot::aliases`]: super::MemorySnapshot::aliases
    ///
    /// # Errors
    /// Any error stops the reading.
    fn alias(&mut self, alias: Segment) -> Result<(), Stop> {
        Ok(())
    }

    /// Begins the history of a device, which may have no entries.
    ///
    /// # Errors
    /// Any error stops the reading.
    fn history(&mut self, device: u32) -> Result<(), Stop> {
        Ok(())
    }

    /// Receives the next entry in the history of a device.
    ///
    /// # Errors
    /// Any error stops the reading.
    fn entry(&mut self, device: u32, entry: TraceEntry) -> Result<(), Stop> {
        Ok(())
    }
}

/// Reads a snapshot, and passes its parts to the visitor one by one. Each segment and entry adds only a few bytes of
/// memory: a file of eight gigabytes needs about as much as the default [`Limits`] allow. `name` is the file name for
/// messages.
///
/// # Errors
/// [`FileError`]. For another kind of file, the message says what the file seems to be.
pub fn visit(reader: impl BufRead, name: impl AsRef<Path>, visitor: &mut dyn SnapshotVisitor) -> Result<(), FileError> {
    visit_with(reader, name, visitor, Limits::default())
}

/// Like [`visit`], with other limits.
///
/// # Errors
/// The errors of [`visit`].
pub fn visit_with(
    mut reader: impl BufRead,
    name: impl AsRef<Path>,
    visitor: &mut dyn SnapshotVisitor,
    limits: Limits,
) -> Result<(), FileError> {
    visit_all(&mut reader, name.as_ref(), visitor, limits)
}

fn visit_all(
    mut reader: &mut dyn BufRead,
    path: &Path,
    visitor: &mut dyn SnapshotVisitor,
    limits: Limits,
) -> Result<(), FileError> {
    let start = fill(reader).map_err(|error| FileError::io(path, "read", error))?;
    if let Some(what) = seems_to_be(start) {
        return Err(FileError::content(path, 0, format!("not a snapshot: the file seems to be {what}")));
    }
    if !pickle::begins(start) {
        return Err(FileError::content(path, 0, "not a snapshot: the file is not a pickle of a dict or list"));
    }
    let mut passing = Passing::new(visitor);
    let ended = match pickle::stream(&mut reader, &mut passing, limits) {
        Ok((mut heap, root)) => passing.rest(&mut heap, root),
        Err(ReadError::Stop(end)) => Err(Halt::Stop(end)),
        Err(ReadError::Pickle(source)) => return Err(FileError::Pickle { path: path.to_owned(), source }),
    };
    match ended {
        Ok(()) => Ok(()),
        Err(Halt::Stop(End::Wrong(Wrong { offset, reason }))) => Err(FileError::content(path, offset, reason)),
        Err(Halt::Stop(End::Visitor(source))) => Err(FileError::Stopped { path: path.to_owned(), source }),
        Err(Halt::Fault(fault)) => {
            let source = PickleError { offset: 0, fault };
            Err(FileError::Pickle { path: path.to_owned(), source })
        }
    }
}
