use std::error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use accelerator_core::{Error, printable};
use accelerator_tracker::FileError;
use accelerator_tracker::limits::LimitError;
use accelerator_tracker::plot::PlotError;

use crate::convert::ConvertError;
use crate::replay::ReplayError;
use crate::trace::SourceError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The trace cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A line of the trace cannot be replayed.
    #[error("{trace}:{line}: {error}")]
    Line {
        /// The trace.
        trace: String,
        /// The line.
        line: usize,
        /// The reason.
        error: ReplayError,
    },
    /// The library returned an error.
    #[error(transparent)]
    Accelerator(#[from] Error),
    /// Two backends of the program have this name.
    #[error(
        "two backends of this program are called `{0}`: give yours another `KIND`, or build accelerator-cli without its \
         own, which is a feature"
    )]
    SameName(&'static str),
    /// No conformance case has this text in its name.
    #[error("no case name contains `{}`", printable(.0))]
    NoCase(String),
    /// A tracker file or a snapshot cannot be read.
    #[error(transparent)]
    Recorded(#[from] FileError),
    /// A picture cannot be drawn or written.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A snapshot has no data for this device.
    #[error("{}: nothing was recorded for device {device}; recorded devices: {has}", printable(path))]
    NoDevice {
        /// The snapshot.
        path: PathBuf,
        /// The requested device.
        device: u32,
        /// The devices in the snapshot.
        has: String,
    },
    /// A file is not a snapshot.
    #[error(
        "{0}: not a snapshot, because it is not a pickle: `torch.cuda.memory._dump_snapshot` and \
         `accel replay --snapshot` write snapshots"
    )]
    NoSnapshot(String),
    /// A snapshot is empty.
    #[error("{0}: the snapshot has neither a history nor segments: was `_record_memory_history` called?")]
    NothingRecorded(String),
    /// A snapshot has more memory from before its history than a trace may rebuild.
    #[error("{name}: the memory from before its history cannot be rebuilt: {source}")]
    NotRebuilt {
        /// The snapshot.
        name: String,
        /// The limit that was exceeded.
        source: LimitError,
    },
    /// There is nothing to report.
    #[error("{name}: nothing to report: it has no {lacks}")]
    NothingToShow {
        /// The input.
        name: String,
        /// What is missing.
        lacks: &'static str,
    },
    /// A trace has no allocations, so all settings give the same result.
    #[error("{0}: nothing to compare: it allocates nothing")]
    NoAllocations(String),
    /// A picture would be empty.
    #[error("{}: nothing to draw: {name} has no {lacks}", printable(path))]
    NoPicture {
        /// The picture.
        path: PathBuf,
        /// The input.
        name: String,
        /// What is missing.
        lacks: &'static str,
    },
    /// A picture cannot be drawn.
    #[error("{}: cannot be drawn: {why}", printable(path))]
    NotDrawn {
        /// The picture.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The output would replace the input.
    #[error("{}: the output would replace the input: choose another name", printable(.0))]
    IsInput(PathBuf),
    /// An option has no effect with the other options or with this input.
    #[error("{0}\n\nFor more information, try '--help'.")]
    Usage(String),
    /// A snapshot that must be read twice cannot be saved to a temporary file.
    #[error("{name}: cannot be saved to a temporary file in {}: {error}", printable(&std::env::temp_dir()))]
    Spool {
        /// The snapshot.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// An output file cannot be written.
    #[error("{}: cannot be written: {error}", printable(path))]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file exceeds a limit.
    #[error("{0}: if you trust the file, add `--no-limits`")]
    Limited(Box<Failure>),
    /// Standard output cannot be written.
    #[error("standard output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Mentions `--no-limits` if it would help.
    pub(crate) fn with_advice(self) -> Self {
        let mut next: Option<&(dyn error::Error + 'static)> = Some(&self);
        while let Some(error) = next {
            let inner = error.downcast_ref::<io::Error>().and_then(LimitError::of);
            if error.is::<LimitError>() || inner.is_some() {
                return Self::Limited(Box::new(self));
            }
            next = error.source();
        }
        self
    }

    /// Returns the failure for an error in a line of a trace.
    pub(crate) fn in_line(trace: &str, line: usize, error: impl Into<ReplayError>) -> Self {
        Self::Line { trace: trace.to_owned(), line, error: error.into() }
    }

    /// Returns the failure for a snapshot that cannot be converted to a trace.
    pub(crate) fn in_snapshot(name: &str, error: ConvertError) -> Self {
        match error {
            ConvertError::Empty => Self::NothingRecorded(name.to_owned()),
            ConvertError::NoSuchDevice { device, known } => {
                let known: Vec<_> = known.iter().map(u32::to_string).collect();
                Self::NoDevice { path: name.into(), device, has: known.join(", ") }
            }
            ConvertError::File(error) => error.into(),
            ConvertError::NotRebuilt(source) => Self::NotRebuilt { name: name.to_owned(), source },
            ConvertError::Output(error) => error.into(),
        }
    }

    /// Returns the failure for an option that has no effect on this kind of input.
    pub(crate) fn unused(option: &str, name: &str, kind: &str) -> Self {
        Self::Usage(format!("{name} is {kind}: `{option}` has no effect on it; leave the option out"))
    }

    /// Returns 2 for wrong usage, otherwise 1.
    pub fn status(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }

    /// Returns whether the reader of the output has exited, as in `accel info | head -1`.
    pub fn is_closed_pipe(&self) -> bool {
        let error = match self {
            Self::Output(error) => error,
            Self::Recorded(FileError::Io { source, .. })
            | Self::Plot(PlotError::File(FileError::Io { source, .. })) => source,
            _ => return false,
        };
        error.kind() == io::ErrorKind::BrokenPipe
    }
}
