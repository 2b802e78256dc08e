use std::io::{BufRead, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::file::FileError;

/// Bytes of the longest line that is read: names are short.
const LONGEST: u64 = 1 << 20;

/// The lines of a file, with where they are.
pub(super) struct Lines<'a, R> {
    reader: R,
    path: &'a Path,
    text: Vec<u8>,
    /// From 1.
    number: u64,
    /// Where the line starts in the file.
    start: u64,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(reader: R, path: &'a Path) -> Self {
        Self { reader, path, text: Vec::new(), number: 0, start: 0 }
    }

    /// Reads the next line. Whether there was one.
    pub(super) fn advance(&mut self) -> Result<bool, FileError> {
        self.start += self.text.len() as u64;
        self.number += 1;
        self.text.clear();
        let read = self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut self.text);
        match read.map_err(|error| FileError::io(self.path, "read", error))? as u64 {
            LONGEST if !self.is_whole() => {
                Err(self.wrong(format!("the line is longer than {LONGEST} bytes")))
            }
            length => Ok(length > 0),
        }
    }

    /// What the line says.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        serde_json::from_slice(&self.text).map_err(|error| {
            if !self.is_whole() {
                return self.wrong("the file is cut off in this line");
            }
            // The place is told by ours, which knows the line.
            let text = error.to_string();
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            let column = error.column().saturating_sub(1) as u64;
            FileError::content(self.path, self.start + column, format!("line {}: {what:.200}", self.number))
        })
    }

    /// What is wrong with the line, or with the file at the place where one should be.
    pub(super) fn wrong(&self, what: impl AsRef<str>) -> FileError {
        FileError::content(self.path, self.start, format!("line {}: {}", self.number, what.as_ref()))
    }

    fn is_whole(&self) -> bool {
        self.text.ends_with(b"\n")
    }
}
