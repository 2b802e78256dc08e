//! Asks the process that shares memory what it is, and stays connected to it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::connect;

use super::description::{Description, MESSAGE};
use super::socket::{self, RANDOM, Secret, WITHDRAWN, failed};
use super::{MAGIC, MemoryHandle, server};
use crate::types::SharingProblem;

/// How long a process waits for the answer of the one that shares the memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where memory is imported from.
pub(crate) enum Source<'a> {
    /// The server that the handle names.
    Handle(&'a MemoryHandle),
    /// A socket over which a process sent a handle.
    Socket(BorrowedFd<'a>),
}

/// A connection to the process that shares memory. Until it is dropped, the memory counts as imported.
#[derive(Debug)]
pub(crate) struct Connection {
    _socket: OwnedFd,
}

/// Begins an import.
pub(crate) fn open(source: &Source<'_>) -> Result<(Connection, Description), SharingProblem> {
    let (socket, secret) = match source {
        Source::Handle(handle) => connected(handle)?,
        Source::Socket(socket) => received(*socket)?,
    };
    socket::limit(&socket, PATIENCE)?;
    socket::send(socket.as_fd(), &secret, &[])?;
    let (head, _) = socket::receive(socket.as_fd(), MESSAGE)?;
    if head == WITHDRAWN {
        return Err(SharingProblem::Withdrawn);
    }
    let (mut description, count) = Description::read_head(&head)?;
    while (description.pieces.len() as u64) < count {
        let (pieces, files) = socket::receive(socket.as_fd(), MESSAGE)?;
        description.add_pieces(&pieces, files.into_iter().map(File::from))?;
    }
    description.check()?;
    Ok((Connection { _socket: socket }, description))
}

/// Sends a handle, together with a connection to its server.
pub(super) fn send(handle: &MemoryHandle, over: BorrowedFd<'_>) -> Result<(), SharingProblem> {
    let (connection, _) = connection(handle)?;
    socket::send(over, handle.as_bytes(), &[connection.as_fd()])
}

/// Receives a handle with its connection.
fn received(from: BorrowedFd<'_>) -> Result<(OwnedFd, Secret), SharingProblem> {
    let (bytes, descriptors) = socket::receive(from, MAGIC.len() + 2 * RANDOM)?;
    let (name, secret) = MemoryHandle(bytes).parts::<RANDOM>()?;
    let connection = descriptors.into_iter().next().ok_or(SharingProblem::NotAHandle)?;
    if server::is_own(&name) {
        return Err(SharingProblem::OwnProcess);
    }
    Ok((connection, secret))
}

/// Connects to the server that a handle names, in another process.
fn connected(handle: &MemoryHandle) -> Result<(OwnedFd, Secret), SharingProblem> {
    let (name, _) = handle.parts::<RANDOM>()?;
    if server::is_own(&name) {
        return Err(SharingProblem::OwnProcess);
    }
    connection(handle)
}

fn connection(handle: &MemoryHandle) -> Result<(OwnedFd, Secret), SharingProblem> {
    let (name, secret) = handle.parts::<RANDOM>()?;
    let socket = socket::socket()?;
    connect(&socket, &socket::address(&name)?).map_err(|error| match error {
        Errno::CONNREFUSED => SharingProblem::Gone,
        error => failed("connect", error),
    })?;
    Ok((socket, secret))
}
