use accelerator::Error;

use crate::file::FileError;

/// Why an operation of a tracker failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TrackerError {
    /// The tracker is running, and continues to run.
    #[error("the tracker is running: stop it first")]
    Running,
    /// The tracker was already stopped, or never started. Its recording is unchanged.
    #[error("the tracker is not running: start it with `start_monitor`")]
    NotRunning,
    /// The device returned an error.
    #[error(transparent)]
    Accelerator(#[from] Error),
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

accelerator_core::debug_as_display!(TrackerError);

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::io;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::history::DumpError;
    use crate::limits::LimitError;
    use crate::{PickleError, PickleFault};

    fn file_error() -> FileError {
        FileError::io(Path::new("run.jsonl"), "opened", io::Error::other("no such file"))
    }

    fn pickle_error() -> PickleError {
        PickleError { offset: 7, fault: LimitError::Memory { limit: 96 }.into() }
    }

    /// Rust prints the `Debug` of an error that `main` returns.
    #[test]
    fn an_error_that_main_returns_shows_its_message_with_its_causes() {
        let path = PathBuf::from("run.pickle");
        let errors: [(Box<dyn StdError>, &str); 8] = [
            (Box::new(file_error()), "run.jsonl"),
            (Box::new(FileError::Pickle { path, source: pickle_error() }), "run.pickle: at byte 7: "),
            (Box::new(pickle_error()), "at byte 7: "),
            (Box::new(PickleFault::TooDeep { limit: 3 }), "3"),
            (Box::new(LimitError::Line { limit: 80 }), "80 bytes"),
            (Box::new(TrackerError::NotRunning), "`start_monitor`"),
            (Box::new(TrackerError::from(file_error())), "run.jsonl"),
            (Box::new(DumpError::from(file_error())), "run.jsonl"),
        ];
        for (error, expected) in &errors {
            let shown = format!("{error:?}");
            assert_eq!(shown, error.to_string());
            assert!(shown.contains(expected), "expected `{expected}` in: {shown}");
            let causes = std::iter::successors(error.source(), |&cause| cause.source());
            for cause in causes.map(ToString::to_string) {
                assert!(shown.contains(&cause), "expected `{cause}` in: {shown}");
            }
        }
    }
}
