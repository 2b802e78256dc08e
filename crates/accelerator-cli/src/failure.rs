use std::io;
use std::path::{Path, PathBuf};

use accelerator_core::Error;

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
        /// Why.
        error: ReplayError,
    },
    /// The library refuses.
    #[error(transparent)]
    Accelerator(#[from] Error),
    /// No conformance case has this in its name.
    #[error("no case has `{0}` in its name")]
    NoCase(String),
    /// A file for output cannot be written.
    #[error("{}: cannot be written: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// What is wrong with a line of a trace.
    pub(crate) fn in_line(trace: &str, line: usize, error: impl Into<ReplayError>) -> Self {
        Self::Line { trace: trace.to_owned(), line, error: error.into() }
    }

    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }

    /// Whether the reader of the output has had enough, as in `accel info | head -1`.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
