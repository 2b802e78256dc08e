use accelerator::Error;

use crate::file::FileError;

/// Why a tracker does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrackerError {
    /// It runs, and goes on.
    #[error("the tracker is running: stop it first")]
    Running,
    /// It was stopped before, or never started. What it has recorded is still there.
    #[error("the tracker is not running: start it with `start_monitor`")]
    NotRunning,
    /// The device refuses.
    #[error(transparent)]
    Accelerator(#[from] Error),
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
