use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};

use accelerator_tracker::excerpt;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    expected: String,
    found: Option<String>,
}

impl ParseError {
    pub(super) fn new(expected: &str, found: Option<&str>) -> Self {
        Self { expected: expected.to_owned(), found: found.map(str::to_owned) }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, ", self.expected)?;
        match &self.found {
            Some(found) => write!(f, "but found `{}`", excerpt(found)),
            None => f.write_str("but the line ends"),
        }
    }
}

impl std::error::Error for ParseError {}

/// The words of a line that have not been read yet.
pub(super) struct Words<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    /// Splits a line without its comment.
    pub(super) fn of(line: &'a str) -> Self {
        Self(line.split('#').next().unwrap_or_default().split_ascii_whitespace())
    }

    /// Returns the next word, if there is one.
    pub(super) fn any(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    pub(super) fn id(&mut self) -> Result<u64, ParseError> {
        self.next("the number of an allocation")
    }

    pub(super) fn bytes(&mut self) -> Result<u64, ParseError> {
        self.next("a number of bytes")
    }

    pub(super) fn stream(&mut self) -> Result<u32, ParseError> {
        self.next("the number of a stream")
    }

    pub(super) fn next<T: FromStr>(&mut self, expected: &str) -> Result<T, ParseError> {
        self.or_end(expected)?.ok_or_else(|| ParseError::new(expected, None))
    }

    /// Reads the next word, or returns `None` at the end of the line.
    pub(super) fn or_end<T: FromStr>(&mut self, expected: &str) -> Result<Option<T>, ParseError> {
        let word = self.0.next();
        word.map(str::parse).transpose().map_err(|_| ParseError::new(expected, word))
    }

    /// Reads all words up to the end of the line.
    pub(super) fn rest<T: FromStr>(&mut self, expected: &str) -> Result<Vec<T>, ParseError> {
        std::iter::from_fn(|| self.or_end(expected).transpose()).collect()
    }

    /// Returns all words up to the end of the line, without the white space between them.
    pub(super) fn joined(&mut self) -> String {
        self.0.by_ref().collect()
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        self.0.next().map_or(Ok(()), |more| Err(ParseError::new("the end of the line", Some(more))))
    }
}
