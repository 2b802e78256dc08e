//! Reads and writes files.

mod temporary;
mod whole;

use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};

use accelerator_core::printable;

pub use self::temporary::{TemporaryName, remove_temporary_files, temporary_file};
pub use self::whole::{is_standard_output, write_whole};
use crate::limits::LimitError;
use crate::pickle::PickleError;

/// Why a file cannot be read or written.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system returned an error.
    #[error("{}: cannot be {doing}: {source}", printable(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed: `opened`, `read` or `written`.
        doing: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Its contents are invalid.
    #[error("{}: at byte {offset}: {reason}", printable(path))]
    Content {
        /// The file.
        path: PathBuf,
        /// The offset, from 0.
        offset: u64,
        /// The problem, and what to do about it.
        reason: String,
    },
    /// It is not a readable pickle.
    #[error("{}: {source}", printable(path))]
    Pickle {
        /// The file.
        path: PathBuf,
        /// The offset and the reason.
        source: PickleError,
    },
    /// It exceeds a limit.
    #[error("{}: at byte {offset}: line {line}: {source}", printable(path))]
    Limit {
        /// The file.
        path: PathBuf,
        /// The offset at which the line begins, from 0.
        offset: u64,
        /// The number of the line, from 1.
        line: u64,
        /// The limit that was exceeded.
        source: LimitError,
    },
    /// The visitor of its contents stopped with an error.
    #[error("{}: {source}", printable(path))]
    Stopped {
        /// The file.
        path: PathBuf,
        /// The error of the visitor.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

accelerator_core::debug_as_display!(FileError);

impl FileError {
    pub(crate) fn io(path: &Path, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), doing, source }
    }

    pub(crate) fn content(path: &Path, offset: u64, reason: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), offset, reason: printable(&reason.into()) }
    }
}

/// Returns the next bytes of a reader; none at its end. A read that a signal interrupted is repeated, as the methods of
/// [`io::Read`] do.
#[inline]
pub(crate) fn fill<R: BufRead + ?Sized>(reader: &mut R) -> io::Result<&[u8]> {
    // Calls `fill_buf` twice, since with an early return the borrow would last to the end of the function.
    while let Err(error) = reader.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    reader.fill_buf()
}

/// Guesses what kind of file begins like this, if it is not one of ours.
pub(crate) fn seems_to_be(start: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 12] = [
        (b"PK\x03\x04", "a zip archive, such as `torch.save` writes"),
        // The older format of `torch.save` begins with this number, pickled separately.
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "what older versions of `torch.save` write"),
        (b"\x1f\x8b", "compressed with gzip: unpack it first"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
        (b"\x89PNG", "a picture"),
        (b"\x7fELF", "a program"),
        (b"<", "a page or a picture, such as `accel report` writes"),
        (b"{", "JSON"),
        (b"[", "JSON"),
        (b"#", "a text file"),
        (b"\xef\xbb\xbf", "a text file"),
        (b"\xff\xfe", "a text file in UTF-16"),
    ];
    if start.is_empty() {
        return Some("empty");
    }
    let known = KNOWN.iter().find(|(magic, _)| start.starts_with(magic));
    known.map(|(_, what)| *what)
}

/// Returns the beginning of a string from a file, for use in a message. Characters that control a terminal are escaped.
pub fn excerpt(text: &str) -> String {
    shortened(text, 80)
}

/// Like [`excerpt`], with at most `longest` characters.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    let end = text.char_indices().nth(longest).map_or(text.len(), |(end, _)| end);
    let rest = if end < text.len() { "…" } else { "" };
    printable(&text[..end]) + rest
}
