use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::fields::Wrong;
use super::passing::{End, Passing};
use super::types::{Annotation, DeviceNotes, MemorySnapshot, Segment, Setting, TraceEntry};
use super::visit::{SnapshotVisitor, Stop};
use super::within::Within;
use crate::file::{FileError, seems_to_be};
use crate::limits::Limits;
use crate::pickle::{self, Halt, PickleError, ReadError};

const BUFFER: usize = 1 << 18;

impl MemorySnapshot {
    /// Reads a file that PyTorch's `torch.cuda.memory._dump_snapshot` or [`write`](Self::write) has written, also one of
    /// an older PyTorch. Nothing in it is run. It may take as much memory as the default [`Limits`] allow.
    ///
    /// # Errors
    /// [`FileError`], for a file of another kind with what it seems to be.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::read_with(path, Limits::default())
    }

    /// As [`read`](Self::read), up to other limits.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, limits: Limits) -> Result<Self, FileError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| FileError::io(path, "opened", error))?;
        let mut snapshot = Self::default();
        let mut within = Within::new(&mut snapshot, limits);
        visit_file(BufReader::with_capacity(BUFFER, file), path, &mut within, limits)?;
        Ok(snapshot)
    }
}

impl SnapshotVisitor for MemorySnapshot {
    fn notes(&mut self, notes: DeviceNotes) -> Result<(), Stop> {
        self.notes.push(notes);
        Ok(())
    }

    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        self.settings.push((name.to_owned(), setting));
        Ok(())
    }

    fn annotation(&mut self, annotation: Annotation) -> Result<(), Stop> {
        self.annotations.push(annotation);
        Ok(())
    }

    fn segment(&mut self, segment: Segment) -> Result<(), Stop> {
        self.segments.push(segment);
        Ok(())
    }

    fn alias(&mut self, alias: Segment) -> Result<(), Stop> {
        self.aliases.push(alias);
        Ok(())
    }

    fn history(&mut self, _: u32) -> Result<(), Stop> {
        self.device_traces.push(Vec::new());
        Ok(())
    }

    fn entry(&mut self, _: u32, entry: TraceEntry) -> Result<(), Stop> {
        if let Some(history) = self.device_traces.last_mut() {
            history.push(entry);
        }
        Ok(())
    }
}

pub(super) fn visit_file(
    mut reader: impl BufRead,
    path: &Path,
    visitor: &mut impl SnapshotVisitor,
    limits: Limits,
) -> Result<(), FileError> {
    let start = reader.fill_buf().map_err(|error| FileError::io(path, "read", error))?;
    if let Some(what) = seems_to_be(start) {
        return Err(FileError::content(path, 0, format!("no snapshot: the file seems to be {what}")));
    }
    if !pickle::begins(start) {
        return Err(FileError::content(path, 0, "no snapshot: the file is no pickle of a dict or list"));
    }
    let mut passing = Passing::new(visitor);
    let ended = match pickle::stream(reader, &mut passing, limits) {
        Ok((mut heap, root)) => passing.rest(&mut heap, root),
        Err(ReadError::Stop(end)) => Err(Halt::Stop(end)),
        Err(ReadError::Pickle(source)) => return Err(FileError::Pickle { path: path.to_owned(), source }),
    };
    match ended {
        Ok(()) => Ok(()),
        Err(Halt::Stop(End::Wrong(Wrong { offset, reason }))) => {
            Err(FileError::content(path, offset, reason))
        }
        Err(Halt::Stop(End::Visitor(source))) => Err(FileError::Stopped { path: path.to_owned(), source }),
        Err(Halt::Fault(fault)) => {
            let source = PickleError { offset: 0, fault };
            Err(FileError::Pickle { path: path.to_owned(), source })
        }
    }
}
