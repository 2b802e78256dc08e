//! The output of the conversion.

use std::io;

use accelerator_core::printable;

use crate::trace::Op;

/// A line of the trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// An operation.
    Operation(Op),
    /// A comment of one line.
    Comment(String),
}

/// Receives the lines of a trace.
pub type Sink<'a> = &'a mut dyn FnMut(Written) -> io::Result<()>;

/// Numbers allocations, and passes lines on.
pub(super) struct Output<'a> {
    sink: Sink<'a>,
    allocations: u64,
    operations: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(sink: Sink<'a>) -> Self {
        Self { sink, allocations: 0, operations: 0 }
    }

    /// Returns the number of operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn write(&mut self, op: Op) -> io::Result<()> {
        self.operations += 1;
        (self.sink)(Written::Operation(op))
    }

    /// Writes an allocation with an unused number, and returns the number.
    pub(super) fn allocate(&mut self, bytes: u64, stream: u32) -> io::Result<u64> {
        self.allocations += 1;
        let id = self.allocations;
        self.write(Op::Alloc { id, bytes, stream })?;
        Ok(id)
    }

    pub(super) fn free(&mut self, id: u64) -> io::Result<()> {
        self.write(Op::Free { id })
    }

    pub(super) fn comment(&mut self, text: &str) -> io::Result<()> {
        (self.sink)(Written::Comment(printable(text)))
    }
}
