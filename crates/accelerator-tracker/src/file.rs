//! Files as this crate reads and writes them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::pickle::PickleError;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses.
    #[error("{}: cannot be {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was to be done: `opened`, `read`, `written`.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It does not hold what it should.
    #[error("{}: at byte {offset}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where, from 0.
        offset: u64,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// It is no pickle that can be read.
    #[error("{}: {source}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// Where, and why not.
        source: PickleError,
    },
    /// What was told of its content did not want to go on.
    #[error("{}: {source}", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl FileError {
    pub(crate) fn io(path: &Path, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), doing, source }
    }

    pub(crate) fn content(path: &Path, offset: u64, reason: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), offset, reason: reason.into() }
    }
}

/// What a file seems to be that begins so, if it is nothing of ours.
pub(crate) fn seems_to_be(start: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 12] = [
        (b"PK\x03\x04", "a zip archive, as `torch.save` writes"),
        // The number that the older format of `torch.save` begins with, as a pickle of its own.
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "what older versions of `torch.save` write"),
        (b"\x1f\x8b", "compressed with gzip: unpack it first"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
        (b"\x89PNG", "a picture"),
        (b"\x7fELF", "a program"),
        (b"<", "a page or a picture, as `accel report` writes"),
        (b"{", "JSON"),
        (b"[", "JSON"),
        (b"#", "a text"),
        (b"\xef\xbb\xbf", "a text"),
        (b"\xff\xfe", "a text in UTF-16"),
    ];
    if start.is_empty() {
        return Some("empty");
    }
    let known = KNOWN.iter().find(|(magic, _)| start.starts_with(magic));
    known.map(|(_, what)| *what)
}

/// A text of a file as it may stand in a message: only its beginning, and with nothing that a terminal obeys.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// Writes a file whole or not at all: beside it first, and then under its name. A file that was there stays until then. A
/// symbolic link stays, and its file is written. What is no file, as a pipe or `/dev/stdout`, is written to as it is.
///
/// # Errors
/// [`FileError::Io`], also for an error of `write`.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let is_file = fs::metadata(path).map(|found| found.is_file());
    let written = match fs::canonicalize(path) {
        Ok(file) if is_file.unwrap_or(false) => replaced(&file, write),
        // There is nothing under this name, and not even a link.
        Err(_) if fs::symlink_metadata(path).is_err() => replaced(path, write),
        _ => File::create(path).and_then(|file| {
            let mut file = BufWriter::new(file);
            write(&mut file)?;
            file.flush()
        }),
    };
    written.map_err(|source| FileError::io(path, "written", source))
}

fn replaced(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".accelerator-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // less the umask, as of any new file
    // Its own errors name it, and nobody knows it: the caller names the file.
    let temporary = builder.tempfile_in(folder).map_err(|error| io::Error::from(error.kind()))?;
    let mut file = BufWriter::new(temporary.as_file());
    write(&mut file)?;
    file.flush()?;
    drop(file);
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    // The name too is on the disk then, where the system can tell folders so.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_that_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/file");
        let error = write_whole(&path, |_| Ok(())).unwrap_err().to_string();
        assert!(error.starts_with(path.to_str().unwrap()) && !error.contains(".part"), "{error}");
    }
}
