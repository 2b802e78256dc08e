//! Snapshots that are read twice.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use accelerator_core::printable;
use accelerator_tracker::snapshot::{MemorySnapshot, SnapshotVisitor, visit_with};
use accelerator_tracker::{FileError, Limits, temporary_file};

use crate::failure::Failure;
use crate::trace::{Source, SourceError};

/// A snapshot that can be visited more than once.
pub trait Passes {
    /// Visits all of it.
    ///
    /// # Errors
    /// [`FileError`].
    fn pass(&mut self, visitor: &mut dyn SnapshotVisitor) -> Result<(), FileError>;

    /// Returns how many bytes of memory its contents may use.
    fn memory(&self) -> u64;
}

/// A snapshot in a file, which is never completely in memory.
pub struct SnapshotFile {
    name: PathBuf,
    limits: Limits,
    /// The input file itself, or a temporary file with the part that has been read.
    file: File,
    /// The rest, which is appended to the temporary file as it is read. So decompression stops if the file turns out
    /// not to be a snapshot.
    rest: Box<dyn BufRead>,
}

/// The size of reads in bytes.
const BUFFER: usize = 1 << 18;

impl SnapshotFile {
    /// Returns whether a file that begins like this is a pickle, as PyTorch's snapshots are, and not a trace.
    pub fn is_like(start: &[u8]) -> bool {
        // Protocols 0 and 1 begin with the dictionary, later ones with the protocol number.
        matches!(start, [0x80, ..] | [b'(', b'd', ..] | [b'}', ..])
    }

    /// Opens the file with this name, or standard input for `-`. Returns a snapshot or, as the inner error, a trace.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn named(path: &Path, limits: Limits) -> Result<Result<Self, Source>, Failure> {
        match path.as_os_str() == "-" {
            true => Self::take(Source::standard_input(limits)?),
            false => Self::open(path, limits),
        }
    }

    /// Opens a file. Returns a snapshot or, as the inner error, a trace.
    ///
    /// # Errors
    /// [`Failure`] if the file cannot be opened, or if it is compressed and there is no room for a temporary file.
    pub fn open(path: &Path, limits: Limits) -> Result<Result<Self, Source>, Failure> {
        let name = printable(path);
        let mut file = File::open(path).map_err(|error| SourceError::Open { name, error })?;
        let mut start = [0; 2];
        // A pipe cannot be read twice.
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        let is_plain = is_file && file.read_exact(&mut start).is_ok() && Self::is_like(&start);
        match is_plain {
            true => Ok(Ok(Self { name: path.to_owned(), limits, file, rest: Box::new(io::empty()) })),
            false => Self::take(Source::open_with(path, limits)?),
        }
    }

    /// Returns the snapshot from a source, by way of a temporary file, or the source itself if it is a trace.
    ///
    /// # Errors
    /// [`Failure::Spool`].
    pub fn take(mut source: Source) -> Result<Result<Self, Source>, Failure> {
        if !source.starts(Self::is_like)? {
            return Ok(Err(source));
        }
        let (name, limits) = (source.name().to_owned(), source.limits());
        match temporary_file() {
            Ok(file) => Ok(Ok(Self { name: name.into(), limits, file, rest: source.into_rest() })),
            Err(error) => Err(Failure::Spool { name, error }),
        }
    }

    /// Returns a reader of the contents from the start. Data that is read for the first time is appended to the file.
    pub(crate) fn content(&mut self) -> io::Result<impl BufRead> {
        self.file.rewind()?;
        let rest = Spooled { rest: &mut self.rest, file: &self.file };
        Ok(BufReader::with_capacity(BUFFER, (&self.file).chain(rest)))
    }

    /// Returns the limits that apply to the file.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the name of the file for messages.
    pub fn name(&self) -> String {
        printable(&self.name)
    }
}

impl Passes for SnapshotFile {
    fn pass(&mut self, visitor: &mut dyn SnapshotVisitor) -> Result<(), FileError> {
        let (path, limits) = (self.name.clone(), self.limits);
        match self.content() {
            Ok(content) => visit_with(content, &path, visitor, limits),
            Err(source) => Err(FileError::Io { path, doing: "read", source }),
        }
    }

    fn memory(&self) -> u64 {
        self.limits.memory
    }
}

/// Bytes that are appended to a file as they are read.
struct Spooled<'a> {
    rest: &'a mut dyn BufRead,
    file: &'a File,
}

impl Read for Spooled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(buffer)?;
        let written = self.file.write_all(&buffer[..count]);
        let kept = |error| io::Error::other(format!("cannot be saved to a temporary file: {error}"));
        written.map(|()| count).map_err(kept)
    }
}

/// A snapshot that is already in memory.
impl Passes for &MemorySnapshot {
    fn memory(&self) -> u64 {
        u64::MAX
    }

    fn pass(&mut self, visitor: &mut dyn SnapshotVisitor) -> Result<(), FileError> {
        let MemorySnapshot { segments, aliases, device_traces, settings, annotations, notes } = self;
        let mut pass = || {
            notes.iter().try_for_each(|notes| visitor.notes(notes.clone()))?;
            segments.iter().try_for_each(|segment| visitor.segment(segment.clone()))?;
            aliases.iter().try_for_each(|alias| visitor.alias(alias.clone()))?;
            for (device, entries) in (0..).zip(device_traces) {
                visitor.history(device)?;
                entries.iter().try_for_each(|entry| visitor.entry(device, entry.clone()))?;
            }
            annotations.iter().try_for_each(|annotation| visitor.annotation(annotation.clone()))?;
            settings.iter().try_for_each(|(name, setting)| visitor.setting(name, setting.clone()))
        };
        pass().map_err(|source| FileError::Stopped { path: "a snapshot in memory".into(), source })
    }
}

#[cfg(test)]
mod tests {
    use accelerator_tracker::snapshot::Collector;

    use super::*;

    /// Reads a pickle that begins with `start`, followed by `count` times `then`. Returns why it is refused, and how
    /// many bytes were written to the file.
    fn refused(start: &[u8], then: &[u8], count: usize) -> (String, u64) {
        let bytes = [start, &then.repeat(count)].concat();
        let source = Source::from_bytes("a pickle", bytes).unwrap();
        let mut snapshot = SnapshotFile::take(source).unwrap().ok().unwrap();
        let error = snapshot.pass(&mut Collector::new(Limits::default())).unwrap_err();
        (error.to_string(), snapshot.file.metadata().unwrap().len())
    }

    #[test]
    fn what_is_no_snapshot_is_unpacked_no_further() {
        let (told, spooled) = refused(b"\x80\x04", b"\0", 1 << 24);
        assert!(told.starts_with("a pickle: at byte 2: 0x00 is not a pickle opcode"), "{told}");
        assert!((2..=BUFFER as u64).contains(&spooled), "{spooled}");
    }

    #[test]
    fn a_snapshot_is_read_again_from_where_it_went() {
        let snapshot = b"}(\x8c\x08segments]\x8c\x0dunknown_to_allK\x01u.";
        let snapshot = [&b"\x80\x04"[..], snapshot].concat();
        let source = Source::from_bytes("a pickle", snapshot.clone()).unwrap();
        let mut file = SnapshotFile::take(source).unwrap().ok().unwrap();
        for _ in 0..3 {
            let mut content = Vec::new();
            file.content().unwrap().take(20).read_to_end(&mut content).unwrap();
            assert_eq!(content, snapshot[..20]);
            content.clear();
            file.content().unwrap().read_to_end(&mut content).unwrap();
            assert_eq!(content, snapshot);
        }
    }
}
