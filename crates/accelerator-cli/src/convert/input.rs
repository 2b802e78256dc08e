//! Snapshots that are read twice.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use accelerator_core::printable;
use accelerator_tracker::snapshot::{MemorySnapshot, SnapshotVisitor, visit};
use accelerator_tracker::{FileError, temporary_file};

use crate::failure::Failure;
use crate::trace::{Source, SourceError};

/// What can be gone through more than once.
pub trait Passes {
    /// Goes through all of it.
    ///
    /// # Errors
    /// [`FileError`].
    fn pass(&mut self, visitor: &mut impl SnapshotVisitor) -> Result<(), FileError>;
}

/// A snapshot in a file, which is never all in memory.
#[derive(Debug)]
pub struct SnapshotFile {
    name: PathBuf,
    file: File,
}

impl SnapshotFile {
    /// Whether a file that begins so is a pickle, as PyTorch writes snapshots, and no trace.
    pub fn is_like(start: &[u8]) -> bool {
        // Protocols 0 and 1 begin with the dictionary, later ones with their number.
        matches!(start, [0x80, ..] | [b'(', b'd', ..] | [b'}', ..])
    }

    /// What is under this name, `-` for standard input: a snapshot, or else the trace that it is.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn named(path: &Path) -> Result<Result<Self, Source>, Failure> {
        match path.as_os_str() == "-" {
            true => Self::take(Source::standard_input()?),
            false => Self::open(path),
        }
    }

    /// The snapshot in a file, or else the trace that it holds.
    ///
    /// # Errors
    /// [`Failure`], for a file that cannot be opened or, where it is compressed, not be unpacked to a temporary one.
    pub fn open(path: &Path) -> Result<Result<Self, Source>, Failure> {
        let name = printable(path);
        let mut file = File::open(path).map_err(|error| SourceError::Open { name, error })?;
        let mut start = [0; 2];
        // What a pipe gives is gone then.
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        let is_plain = is_file && file.read_exact(&mut start).is_ok() && Self::is_like(&start);
        match is_plain {
            true => Ok(Ok(Self { name: path.to_owned(), file })),
            false => Self::take(Source::open(path)?),
        }
    }

    /// The snapshot that comes from a source, in a temporary file, or else the trace that it is.
    ///
    /// # Errors
    /// [`Failure::Spool`].
    pub fn take(mut source: Source) -> Result<Result<Self, Source>, Failure> {
        if !source.starts(Self::is_like) {
            return Ok(Err(source));
        }
        let name = source.name().to_owned();
        let spooled = temporary_file().and_then(|mut file| {
            io::copy(&mut source.into_rest(), &mut file)?;
            Ok(file)
        });
        match spooled {
            Ok(file) => Ok(Ok(Self { name: name.into(), file })),
            Err(error) => Err(Failure::Spool { name, error }),
        }
    }

    /// All of it, from its start.
    pub(crate) fn into_rest(mut self) -> io::Result<impl BufRead> {
        self.file.rewind()?;
        Ok(BufReader::new(self.file))
    }

    /// What it is called in messages.
    pub fn name(&self) -> String {
        printable(&self.name)
    }
}

impl Passes for SnapshotFile {
    fn pass(&mut self, visitor: &mut impl SnapshotVisitor) -> Result<(), FileError> {
        const BUFFER: usize = 1 << 18;
        let rewound = self.file.rewind();
        rewound.map_err(|source| FileError::Io { path: self.name.clone(), doing: "read", source })?;
        visit(BufReader::with_capacity(BUFFER, &self.file), &self.name, visitor)
    }
}

impl Passes for &MemorySnapshot {
    fn pass(&mut self, visitor: &mut impl SnapshotVisitor) -> Result<(), FileError> {
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
