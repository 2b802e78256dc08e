use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use accelerator_core::printable;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::bundled::BUNDLED;
use super::op::{Op, ParseError, parse_line};

/// Lines of a trace, from wherever they come: plain, gzip or zstd, told apart by their first bytes.
pub struct Source {
    name: String,
    lines: Box<dyn BufRead>,
    number: usize,
    text: Vec<u8>,
    comments: Vec<String>,
}

/// Comments that are kept between two operations.
const MOST_COMMENTS: usize = 64;

/// One operation, and the number of its line, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The number.
    pub number: usize,
    /// The operation.
    pub op: Op,
}

/// Why no further line can be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error("{name}: {error}")]
    Open {
        /// The trace.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// It cannot be read further, or not be decompressed.
    #[error("{name}: truncated or damaged behind line {line}: {error}")]
    Read {
        /// The trace.
        name: String,
        /// The last line that was read.
        line: usize,
        /// Why.
        error: io::Error,
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
    /// The first of the bundled traces: GPT-2 small in training, 6 steps.
    ///
    /// # Errors
    /// None, as far as the program is whole.
    pub fn bundled() -> Result<Self, SourceError> {
        let [first, ..] = &BUNDLED;
        first.source()
    }

    /// A file.
    ///
    /// # Errors
    /// [`SourceError::Open`].
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let name = printable(path);
        match File::open(path) {
            Ok(file) => Self::new(name, BufReader::new(file)),
            Err(error) => Err(SourceError::Open { name, error }),
        }
    }

    /// Standard input.
    ///
    /// # Errors
    /// [`SourceError::Open`].
    pub fn standard_input() -> Result<Self, SourceError> {
        Self::new("standard input".to_owned(), BufReader::new(io::stdin()))
    }

    /// Bytes in memory.
    ///
    /// # Errors
    /// [`SourceError::Open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Self, SourceError> {
        Self::new(name.to_owned(), Cursor::new(bytes.into()))
    }

    /// Text that was written to a file, which is read from its start.
    pub(crate) fn from_file(name: &str, file: File) -> Result<Self, SourceError> {
        Self::new(name.to_owned(), BufReader::new(file))
    }

    /// Whether what comes next starts as these say. `false` where nothing can be read, which the next line tells.
    pub(crate) fn starts(&mut self, with: impl FnOnce(&[u8]) -> bool) -> bool {
        self.lines.fill_buf().is_ok_and(with)
    }

    /// What is not read yet, decompressed.
    pub(crate) fn into_rest(self) -> Box<dyn BufRead> {
        self.lines
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The comments just ahead of the last operation.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    fn new(name: String, input: impl BufRead + 'static) -> Result<Self, SourceError> {
        match decompressed(input) {
            Ok(lines) => Ok(Self { name, lines, number: 0, text: Vec::new(), comments: Vec::new() }),
            Err(error) => Err(SourceError::Open { name, error }),
        }
    }

    fn read(&mut self) -> Result<Option<Line>, SourceError> {
        self.comments.clear();
        loop {
            self.text.clear();
            let read = self.lines.read_until(b'\n', &mut self.text).map_err(|error| self.broken(error))?;
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
                return Ok(Some(Line { number: self.number, op }));
            }
            if let Some(comment) = text.trim().strip_prefix('#')
                && self.comments.len() < MOST_COMMENTS
            {
                self.comments.push(comment.trim().to_owned());
            }
        }
    }

    fn broken(&self, error: io::Error) -> SourceError {
        SourceError::Read { name: self.name.clone(), line: self.number, error }
    }
}

impl Iterator for Source {
    type Item = Result<Line, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn decompressed(mut input: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

    let mut start = Vec::new();
    input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start)?;
    let (gzip, zstd) = (start.starts_with(&GZIP), start.starts_with(&ZSTD));
    let whole = Cursor::new(start).chain(input);
    Ok(if gzip {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(whole)))
    } else if zstd {
        Box::new(BufReader::new(ZstdFrames::new(whole)?))
    } else {
        Box::new(whole)
    })
}

/// A zstd file: one frame after the other, until the input ends.
struct ZstdFrames<R: BufRead>(Option<StreamingDecoder<R, FrameDecoder>>);

impl<R: BufRead> ZstdFrames<R> {
    fn new(input: R) -> io::Result<Self> {
        StreamingDecoder::new(input).map(Some).map(Self).map_err(|_| broken_zstd())
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.0 {
            let read = frame.read(buffer).map_err(|_| broken_zstd())?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut input) = self.0.take().map(StreamingDecoder::into_inner) else { break };
            if !input.fill_buf()?.is_empty() {
                *self = Self::new(input)?;
            }
        }
        Ok(0)
    }
}

fn broken_zstd() -> io::Error {
    io::Error::other("a zstd frame is damaged, or the file ends within it")
}
