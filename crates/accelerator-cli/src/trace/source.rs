use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor};
use std::path::Path;

use accelerator_core::printable;
use accelerator_tracker::Limits;
use accelerator_tracker::limits::LimitError;

use super::bundled::BUNDLED;
use super::held::Held;
use super::op::{Op, parse_line};
use super::unpack::unpacked;
use super::words::ParseError;

/// The lines of a trace from any source: plain, gzip or zstd, detected from the first bytes.
pub struct Source {
    name: String,
    limits: Limits,
    lines: Box<dyn BufRead>,
    number: usize,
    text: Vec<u8>,
    comments: Vec<String>,
    held: Held,
}

/// The maximum number of comments that are kept between two operations.
const MOST_COMMENTS: usize = 64;

/// One operation, and the number of its line, counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The number.
    pub number: usize,
    /// The operation.
    pub op: Op,
}

/// Why the next line cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error("{name}: {error}")]
    Open {
        /// The trace.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// The rest of it cannot be read or decompressed.
    #[error("{name}: truncated or damaged after line {line}: {error}")]
    Read {
        /// The trace.
        name: String,
        /// The last line that was read.
        line: usize,
        /// The reason.
        error: io::Error,
    },
    /// It exceeds a limit.
    #[error("{name}:{line}: {source}")]
    Limit {
        /// The trace.
        name: String,
        /// The line that was being read.
        line: usize,
        /// The limit that was exceeded.
        source: LimitError,
    },
    /// A line is malformed.
    #[error("{name}:{line}: {error}")]
    Parse {
        /// The trace.
        name: String,
        /// The line.
        line: usize,
        /// What is wrong with it.
        error: ParseError,
    },
}

impl Source {
    /// Reads the first bundled trace: GPT-2 small in training, 6 steps.
    ///
    /// # Errors
    /// Fails only if the program file is damaged.
    pub fn bundled() -> Result<Self, SourceError> {
        let [first, ..] = &BUNDLED;
        first.source()
    }

    /// Opens a file, with the default [`Limits`].
    ///
    /// # Errors
    /// [`SourceError::Open`], or [`SourceError::Limit`] if the beginning of the file already exceeds a limit.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        Self::open_with(path, Limits::default())
    }

    /// Opens a file with these limits.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(path: &Path, limits: Limits) -> Result<Self, SourceError> {
        let name = printable(path);
        match File::open(path) {
            Ok(file) => Self::new(name, BufReader::new(file), limits),
            Err(error) => Err(SourceError::Open { name, error }),
        }
    }

    /// Reads standard input.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn standard_input(limits: Limits) -> Result<Self, SourceError> {
        Self::new("standard input".to_owned(), BufReader::new(io::stdin()), limits)
    }

    /// Reads bytes in memory, with the default [`Limits`].
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_bytes(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Self, SourceError> {
        Self::from_bytes_with(name, bytes, Limits::default())
    }

    /// Reads bytes in memory, with these limits.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_bytes_with(name: &str, bytes: impl Into<Vec<u8>>, limits: Limits) -> Result<Self, SourceError> {
        Self::new(name.to_owned(), Cursor::new(bytes.into()), limits)
    }

    /// Reads text that was written to a file, from its start.
    pub(crate) fn from_file(name: &str, file: File, limits: Limits) -> Result<Self, SourceError> {
        Self::new(name.to_owned(), BufReader::new(file), limits)
    }

    /// Passes the next bytes to `with`, and returns its result.
    ///
    /// # Errors
    /// [`SourceError::Read`], which a decoder may report only once, or [`SourceError::Limit`].
    pub(crate) fn starts(&mut self, with: impl FnOnce(&[u8]) -> bool) -> Result<bool, SourceError> {
        match self.lines.fill_buf() {
            Ok(start) => Ok(with(start)),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Returns the rest, decompressed.
    pub(crate) fn into_rest(self) -> Box<dyn BufRead> {
        self.lines
    }

    /// Returns the limits that apply to it.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns its name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the comments directly before the last operation.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    fn new(name: String, input: impl BufRead + 'static, limits: Limits) -> Result<Self, SourceError> {
        match unpacked(input, limits) {
            Ok(lines) => {
                let (text, comments, held) = (Vec::new(), Vec::new(), Held::new(limits));
                Ok(Self { name, limits, lines, number: 0, text, comments, held })
            }
            Err(error) => Err(match LimitError::of(&error) {
                Some(limit) => SourceError::Limit { name, line: 1, source: limit.clone() },
                None => SourceError::Open { name, error },
            }),
        }
    }

    /// Starts to count the memory that the lines need: `line` bytes for each line, and `allocation` bytes for each
    /// allocation until it is freed.
    pub(crate) fn charge(&mut self, line: u64, allocation: u64) {
        (self.held.line, self.held.allocation) = (line, allocation);
    }

    fn read(&mut self) -> Result<Option<Line>, SourceError> {
        self.comments.clear();
        loop {
            self.text.clear();
            let read = self.limits.read_line(&mut *self.lines, &mut self.text);
            let read = read.map_err(|error| self.broken(error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let text = String::from_utf8_lossy(&self.text);
            let op = parse_line(&text).map_err(|error| SourceError::Parse {
                name: self.name.clone(),
                line: self.number,
                error,
            })?;
            if let Some(op) = op {
                self.held.add(&op).map_err(|limit| self.beyond(self.number, limit))?;
                return Ok(Some(Line { number: self.number, op }));
            }
            if let Some(comment) = text.trim().strip_prefix('#')
                && self.comments.len() < MOST_COMMENTS
            {
                let comment = comment.trim().to_owned();
                self.held.add_comment(&comment).map_err(|limit| self.beyond(self.number, limit))?;
                self.comments.push(comment);
            }
        }
    }

    fn broken(&self, error: io::Error) -> SourceError {
        match LimitError::of(&error) {
            Some(limit) => self.beyond(self.number + 1, limit.clone()),
            None => SourceError::Read { name: self.name.clone(), line: self.number, error },
        }
    }

    fn beyond(&self, line: usize, source: LimitError) -> SourceError {
        SourceError::Limit { name: self.name.clone(), line, source }
    }
}

impl Iterator for Source {
    type Item = Result<Line, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, memory: u64, line: u64, allocation: u64) -> Result<usize, String> {
        let limits = Limits { memory, ..Limits::default() };
        let mut source = Source::new("a trace".to_owned(), Cursor::new(text.to_owned()), limits).unwrap();
        source.charge(line, allocation);
        let lines = source.collect::<Result<Vec<_>, _>>();
        lines.map(|lines| lines.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_trace_takes_memory_by_what_is_allocated_and_what_is_held() {
        let live: String = (0..10).map(|id| format!("alloc {id} 1 0\n")).collect();
        let freed: String = (0..10).map(|id| format!("alloc {id} 1 0\nfree {id}\n")).collect();
        let beyond = |line| Err(format!("a trace:{line}: its contents take more than 1.00 KiB of memory"));
        // A stream takes 256 bytes, which leaves 768.
        assert_eq!(lines(&live, 1024, 0, 100), beyond(8));
        assert_eq!(lines(&live, 1024, 0, 76), Ok(10));
        assert_eq!(lines(&freed, 1024, 0, 100), Ok(20));
        assert_eq!(lines(&freed, 1024, 100, 100), beyond(7));
        assert_eq!(lines("hold 1\nhold 2\nhold 1\nhold 3\nhold 4\nhold 5\n", 1024, 0, 100), beyond(6));
        assert_eq!(lines(&live, 1024, 0, 0), Ok(10), "it is not replayed");
    }

    #[test]
    fn frees_of_what_was_never_allocated_took_no_memory() {
        let frees = "free 1\n".repeat(20);
        let beyond = "a trace:17: its contents take more than 1.00 KiB of memory";
        assert_eq!(lines(&frees, 1024, 64, 256), Err(beyond.to_owned()));
    }

    #[test]
    fn comments_took_no_memory() {
        let comments = format!("# {}\n", "x".repeat(100)).repeat(10);
        let beyond = "a trace:6: its contents take more than 1.00 KiB of memory";
        assert_eq!(lines(&comments, 1024, 64, 256), Err(beyond.to_owned()));
        assert_eq!(lines(&comments, 1024, 0, 256), Ok(0), "they are not stored");
    }
}
