//! Systems where memory is not shared.

use std::any::Any;

use super::{Description, MemoryHandle};
use crate::types::SharingProblem;

const UNSUPPORTED: SharingProblem = SharingProblem::Unsupported("this needs Linux");

/// Where memory is imported from.
pub(crate) enum Source<'a> {
    /// The server that the handle names.
    Handle(&'a MemoryHandle),
}

/// There is no connection.
#[derive(Debug)]
pub(crate) enum Connection {}

impl Connection {
    pub(crate) fn server(&self) -> &[u8] {
        match *self {}
    }
}

/// There is no offer.
#[derive(Debug)]
pub(super) enum Registration {}

impl Registration {
    pub(super) fn handle(&self) -> &MemoryHandle {
        match *self {}
    }

    pub(super) fn imports(&self) -> usize {
        match *self {}
    }

    pub(super) fn withdraw(self, _kept: Box<dyn Any + Send>) {
        match self {}
    }
}

pub(super) fn register(_: Description, _: Box<dyn Any + Send>) -> Result<Registration, SharingProblem> {
    Err(UNSUPPORTED)
}

pub(crate) fn open(_: &Source<'_>) -> Result<(Connection, Description), SharingProblem> {
    Err(UNSUPPORTED)
}
