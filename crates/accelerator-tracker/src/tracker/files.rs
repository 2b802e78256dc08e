use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::stats::TrackerStats;
use super::{lines, pytorch};
use crate::file::{FileError, seems_to_be, write_whole};
use crate::limits::Limits;
use crate::pickle;

impl TrackerStats {
    /// Writes it to a file as lines of JSON, whole or not at all: a file that is there already stays until then.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write_whole(path.as_ref(), |out| lines::write(self, out))
    }

    /// Writes it to a file that PyTorch's `MemoryTracker.load` reads, whole or not at all. PyTorch:
    /// `MemoryTracker.save_stats`.
    ///
    /// PyTorch's summary of it is this [`summary`](Self::summary), text for text: what was in use at the start stands there as
    /// a first operator `start_monitor`, which PyTorch counts from. It has no place for times, and of markers with one name
    /// for the last only; operators of one name, which a tracker does not make, it would not add up.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save_pytorch(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write_whole(path.as_ref(), |out| pytorch::write(self, out))
    }

    /// Reads what [`save`](Self::save) or [`save_pytorch`](Self::save_pytorch) wrote, or PyTorch's
    /// `MemoryTracker.save_stats`. What it is the file itself tells. Nothing in it is run. It may take as much memory
    /// as the default [`Limits`] allow.
    ///
    /// # Errors
    /// [`FileError`], for a file of another kind with what it seems to be.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::load_with(path, Limits::default())
    }

    /// As [`load`](Self::load), up to other limits.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: impl AsRef<Path>, limits: Limits) -> Result<Self, FileError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| FileError::io(path, "opened", error))?;
        Self::load_from(BufReader::new(file), path, limits)
    }

    /// As [`load_with`](Self::load_with), from wherever the bytes come. `name`: the file, for messages.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_from(
        mut reader: impl BufRead,
        name: impl AsRef<Path>,
        limits: Limits,
    ) -> Result<Self, FileError> {
        Self::load_all(&mut reader, name.as_ref(), limits)
    }

    fn load_all(mut reader: &mut dyn BufRead, path: &Path, limits: Limits) -> Result<Self, FileError> {
        let start = reader.fill_buf().map_err(|error| FileError::io(path, "read", error))?;
        match (start, seems_to_be(start)) {
            ([b'{', ..], _) => lines::read(reader, path, limits),
            (_, Some(seems)) => Err(FileError::content(path, 0, foreign(&format!("it seems to be {seems}")))),
            (start, None) if pickle::begins(start) => pytorch::read(&mut reader, path, limits),
            _ => Err(FileError::content(path, 0, foreign("it is neither lines of JSON nor a pickle"))),
        }
    }
}

/// What is wrong with a file that is none of a tracker.
pub(super) fn foreign(is: &str) -> String {
    format!("not a memory tracker's file: {is}")
}
