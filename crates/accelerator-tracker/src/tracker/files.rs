use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::stats::TrackerStats;
use super::{lines, pytorch};
use crate::file::{FileError, fill, seems_to_be, write_whole};
use crate::limits::Limits;
use crate::pickle;

impl TrackerStats {
    /// Writes the statistics to a file as lines of JSON, completely or not at all: an existing file stays until the new
    /// one is complete.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write_whole(path.as_ref(), |out| lines::write(self, out))
    }

    /// Writes the statistics to a file that PyTorch's `MemoryTracker.load` can read, completely or not at all. PyTorch:
    /// `MemoryTracker.save_stats`.
    ///
    /// PyTorch's summary of the file equals this [`summary`](Self::summary), character for character: the memory at the
    /// start is stored as a first operator `start_monitor`, relative to which PyTorch counts. The file has no place for
    /// times, and keeps only the last marker with each name. PyTorch would not add up operators with the same name, but
    /// a tracker never records two operators with the same name.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save_pytorch(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write_whole(path.as_ref(), |out| pytorch::write(self, out))
    }

    /// Reads a file written by [`save`](Self::save), [`save_pytorch`](Self::save_pytorch) or PyTorch's
    /// `MemoryTracker.save_stats`. The format is detected from the contents. Code in the file is never run. The default
    /// [`Limits`] apply.
    ///
    /// # Errors
    /// [`FileError`]. For another kind of file, the message says what the file seems to be.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::load_with(path, Limits::default())
    }

    /// Like [`load`](Self::load), with other limits.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub fn load_with(path: impl AsRef<Path>, limits: Limits) -> Result<Self, FileError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| FileError::io(path, "opened", error))?;
        Self::load_from(BufReader::new(file), path, limits)
    }

    /// Like [`load_with`](Self::load_with), from any reader. `name` is the file name for messages.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub fn load_from(mut reader: impl BufRead, name: impl AsRef<Path>, limits: Limits) -> Result<Self, FileError> {
        Self::load_all(&mut reader, name.as_ref(), limits)
    }

    fn load_all(mut reader: &mut dyn BufRead, path: &Path, limits: Limits) -> Result<Self, FileError> {
        let start = fill(reader).map_err(|error| FileError::io(path, "read", error))?;
        match (start, seems_to_be(start)) {
            ([b'{', ..], _) => lines::read(reader, path, limits),
            (_, Some(seems)) => Err(FileError::content(path, 0, foreign(&format!("it seems to be {seems}")))),
            (start, None) if pickle::begins(start) => pytorch::read(&mut reader, path, limits),
            _ => Err(FileError::content(path, 0, foreign("it is neither lines of JSON nor a pickle"))),
        }
    }
}

/// Returns the message for a file that is not a tracker file.
pub(super) fn foreign(is: &str) -> String {
    format!("not a memory tracker's file: {is}")
}
