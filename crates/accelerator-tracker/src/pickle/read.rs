use std::convert::Infallible;
use std::io::Read;
use std::path::Path;

use super::heap::Heap;
use super::machine::Machine;
use super::place::Place;
use super::stream::{Halt, ReadError, Sink};
use super::value::Value;
use super::view::View;
use crate::file::FileError;
use crate::limits::{Budget, Limits};

/// Returns whether the pickle of a dictionary or list may begin like this: with the number of its protocol, or, in the
/// oldest protocols, with a mark, an empty list or dictionary, or a class.
pub(crate) fn begins(start: &[u8]) -> bool {
    matches!(start, [0x80 | b'(' | b']' | b'}' | b'c', ..])
}

/// A pickle in memory.
pub(crate) struct Pickle {
    heap: Heap,
    root: Value,
}

impl Pickle {
    /// Returns the object of the pickle.
    pub(crate) fn root(&self) -> View<'_> {
        View::new(&self.heap, self.root)
    }

    /// Returns the budget for the memory of everything that is created from it.
    pub(crate) fn budget(&self) -> Budget {
        self.heap.budget.clone()
    }
}

/// Reads a pickle into memory. `path` is for messages.
///
/// # Errors
/// [`FileError::Pickle`].
pub(crate) fn read(reader: &mut dyn Read, path: &Path, limits: Limits) -> Result<Pickle, FileError> {
    match stream(reader, &mut Whole, limits) {
        Ok((heap, root)) => Ok(Pickle { heap, root }),
        Err(ReadError::Pickle(source)) => Err(FileError::Pickle { path: path.to_owned(), source }),
        Err(ReadError::Stop(never)) => match never {},
    }
}

/// Reads a pickle, and hands over the elements of lists to a sink as they are read.
pub(crate) fn stream<S: Sink>(
    reader: &mut dyn Read,
    sink: &mut S,
    limits: Limits,
) -> Result<(Heap, Value), ReadError<S::Stop>> {
    Machine::new(reader, sink, limits).run()
}

/// A sink that takes no elements, so that the whole pickle stays in memory.
pub(super) struct Whole;

impl Sink for Whole {
    type Stop = Infallible;

    fn takes(&mut self, _: &mut Heap, _: &Place, _: &[Value]) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn element(&mut self, _: &mut Heap, _: &Place, _: Value, _: u64) -> Result<(), Halt<Infallible>> {
        Ok(())
    }

    fn shares(&self, _: View<'_>) -> bool {
        false
    }
}
