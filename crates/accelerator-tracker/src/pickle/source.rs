use std::io::{BufRead, BufReader, Read};

use super::fault::PickleFault;
use crate::file;
use crate::limits::Budget;

/// The maximum size of a read, so that a length alone cannot cause a large allocation.
const PIECE: u64 = 1 << 16;

/// The bytes of a pickle, with their offset.
pub(super) struct Source<'r> {
    /// The reader has its own buffer, since a virtual call for each byte would be slower.
    reader: BufReader<&'r mut dyn Read>,
    offset: u64,
    /// The operation that is being read, for messages.
    opcode: &'static str,
}

impl<'r> Source<'r> {
    pub(super) fn new(reader: &'r mut dyn Read) -> Self {
        Self { reader: BufReader::new(reader), offset: 0, opcode: "an operation" }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Sets the operation to which the next bytes belong.
    pub(super) fn begin(&mut self, opcode: &'static str) {
        self.opcode = opcode;
    }

    /// Returns whether the end is reached.
    pub(super) fn at_end(&mut self) -> Result<bool, PickleFault> {
        Ok(self.fill()?.is_empty())
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, PickleFault> {
        match self.fill()?.first() {
            Some(&byte) => {
                self.consume(1);
                Ok(byte)
            }
            None => Err(self.truncated()),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleFault> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            let next = self.fill()?;
            let count = next.len().min(N - filled);
            if count == 0 {
                return Err(self.truncated());
            }
            bytes[filled..filled + count].copy_from_slice(&next[..count]);
            self.consume(count);
            filled += count;
        }
        Ok(bytes)
    }

    /// Reads `length` bytes and charges them. The caller must discharge them when it drops them.
    pub(super) fn bytes(&mut self, length: u64, budget: &mut Budget) -> Result<Vec<u8>, PickleFault> {
        let mut bytes = Vec::new();
        budget.reserve(&mut bytes, length.min(PIECE) as usize)?;
        let mut left = length;
        while left > 0 {
            let next = self.fill()?;
            let count = (next.len() as u64).min(left).min(PIECE) as usize;
            if count == 0 {
                return Err(self.truncated());
            }
            budget.reserve(&mut bytes, count)?;
            bytes.extend_from_slice(&next[..count]);
            self.consume(count);
            left -= count as u64;
        }
        Ok(bytes)
    }

    /// Reads the bytes of a line without the line end, and charges them. The caller must discharge them when it drops
    /// them.
    pub(super) fn line(&mut self, budget: &mut Budget) -> Result<Vec<u8>, PickleFault> {
        let mut line = Vec::new();
        loop {
            let next = self.fill()?;
            if next.is_empty() {
                return Err(self.truncated());
            }
            let end = next.iter().position(|&byte| byte == b'\n');
            let count = end.unwrap_or(next.len());
            budget.reserve(&mut line, count)?;
            line.extend_from_slice(&next[..count]);
            self.consume(count + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(line);
            }
        }
    }

    #[inline]
    fn fill(&mut self) -> Result<&[u8], PickleFault> {
        Ok(file::fill(&mut self.reader)?)
    }

    fn consume(&mut self, count: usize) {
        self.reader.consume(count);
        self.offset += count as u64;
    }

    fn truncated(&self) -> PickleFault {
        PickleFault::Truncated { opcode: self.opcode }
    }
}
