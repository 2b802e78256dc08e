//! Asks the process that shares memory what it is, and stays connected to it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::connect;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::description::{Description, MESSAGE};
use super::process::{self, OfProcess};
use super::socket::{self, RANDOM, Request, Secret, WITHDRAWN, failed};
use super::{MAGIC, MemoryHandle, server};
use crate::sync::lock;
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

/// An import of memory of another process. Until it is dropped, the memory stays allocated there.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Arc<Link>,
    /// The number of the import on its connection.
    number: u64,
}

/// A connection to a process that shares memory, for all imports from there.
#[derive(Debug)]
pub(super) struct Link {
    /// The process that has the connection. Its forked children have copies, which they must not use.
    process: u32,
    socket: OwnedFd,
    /// The name of the other process's server.
    server: Secret,
    /// The number of imports so far. Held while the process is asked, so that its answers belong together. `None` once
    /// an answer did not come, or not whole: what comes later would be taken for the answer to the next import.
    asked: Mutex<Option<u64>>,
}

/// Begins an import.
pub(crate) fn open(source: &Source<'_>) -> Result<(Connection, Description), SharingProblem> {
    match source {
        Source::Handle(handle) => {
            let (name, secret) = handle.parts::<RANDOM>()?;
            refuse_own(&name)?;
            let link = Link::to(&name)?;
            let opened = link.import(&secret);
            if !is_answered(&opened) {
                // Answers may still come over this connection. The next import makes another one.
                lock(&OfProcess::this().links).remove(&name);
            }
            opened
        }
        Source::Socket(socket) => {
            let (link, secret) = received(*socket)?;
            link.import(&secret)
        }
    }
}

impl Link {
    fn new(socket: OwnedFd, server: Secret) -> Arc<Self> {
        Arc::new(Self { process: std::process::id(), socket, server, asked: Mutex::new(Some(0)) })
    }

    /// Returns the connection to the server with this name.
    fn to(name: &Secret) -> Result<Arc<Self>, SharingProblem> {
        let links = &OfProcess::this().links;
        if let Some(link) = lock(links).get(name) {
            return Ok(link);
        }
        let link = Self::new(connected(name)?, *name);
        let mut links = lock(links);
        links.forget_unused();
        links.insert(*name, &link); // if another thread was faster, both are used
        Ok(link)
    }

    /// Begins an import.
    fn import(self: Arc<Self>, secret: &Secret) -> Result<(Connection, Description), SharingProblem> {
        let mut asked = lock(&self.asked);
        let number = asked.ok_or(SharingProblem::NoAnswer)? + 1;
        // The first request tells the server how it sees that this process has ended.
        let own = if number == 1 { of_this_process()? } else { None };
        let own: Vec<_> = own.iter().map(AsFd::as_fd).collect();
        *asked = None;
        socket::send(self.socket.as_fd(), &Request { number, secret: Some(*secret) }.to_bytes(), &own)?;
        let described = self.description();
        if is_answered(&described) {
            *asked = Some(number);
        }
        drop(asked);
        // The process counts the import from its answer on, so an error ends it, too.
        let connection = Connection { link: self, number };
        described.map(|description| (connection, description))
    }

    /// Receives an answer.
    fn description(&self) -> Result<Description, SharingProblem> {
        let (head, _) = socket::receive(self.socket.as_fd(), MESSAGE)?;
        if head == WITHDRAWN {
            return Err(SharingProblem::Withdrawn);
        }
        let (mut description, count) = Description::read_head(&head)?;
        while (description.pieces.len() as u64) < count {
            let before = description.pieces.len();
            let (pieces, files) = socket::receive(self.socket.as_fd(), MESSAGE)?;
            description.add_pieces(&pieces, files.into_iter().map(File::from))?;
            if description.pieces.len() == before {
                return Err(SharingProblem::NoAnswer);
            }
        }
        description.check()?;
        Ok(description)
    }
}

/// Returns a descriptor of this process; `None` where the system has none.
fn of_this_process() -> Result<Option<OwnedFd>, SharingProblem> {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(process) => Ok(Some(process)),
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Ok(None),
        Err(error) => Err(failed("pidfd_open", error)),
    }
}

/// Whether an import has got its whole answer.
fn is_answered<T>(import: &Result<T, SharingProblem>) -> bool {
    matches!(import, Ok(_) | Err(SharingProblem::Withdrawn))
}

impl Connection {
    /// Returns the name of the other process, which no other process has.
    pub(crate) fn server(&self) -> &[u8] {
        &self.link.server
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if process::is_this(self.link.process) {
            // If the process does not answer, it learns that the import is over when this one ends.
            let _ =
                socket::send(self.link.socket.as_fd(), &Request { number: self.number, secret: None }.to_bytes(), &[]);
        }
    }
}

/// Sends a handle, together with a connection to its server.
pub(super) fn send(handle: &MemoryHandle, over: BorrowedFd<'_>) -> Result<(), SharingProblem> {
    let (name, _) = handle.parts::<RANDOM>()?;
    socket::send(over, handle.as_bytes(), &[connected(&name)?.as_fd()])
}

/// Receives a handle with its connection, from a process that the caller trusts.
fn received(from: BorrowedFd<'_>) -> Result<(Arc<Link>, Secret), SharingProblem> {
    let (bytes, descriptors) = socket::receive(from, MAGIC.len() + 2 * RANDOM)?;
    let (name, secret) = MemoryHandle(bytes).parts::<RANDOM>()?;
    refuse_own(&name)?;
    let connection = descriptors.into_iter().next().ok_or(SharingProblem::NotAHandle)?;
    socket::limit(&connection, PATIENCE)?;
    Ok((Link::new(connection, name), secret))
}

fn refuse_own(name: &Secret) -> Result<(), SharingProblem> {
    if server::is_own(name) { Err(SharingProblem::OwnProcess) } else { Ok(()) }
}

/// Connects to the server with this name.
fn connected(name: &Secret) -> Result<OwnedFd, SharingProblem> {
    let (socket, address) = (socket::socket()?, socket::address(name)?);
    socket::limit(&socket, PATIENCE)?;
    retry_on_intr(|| connect(&socket, &address)).map_err(|error| match error {
        Errno::CONNREFUSED => SharingProblem::Gone,
        error => socket::unanswered("connect", error),
    })?;
    // Once a process has ended, anybody can take the name.
    if socket::is_trusted(&socket) { Ok(socket) } else { Err(SharingProblem::Gone) }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next() {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, server) = pair.unwrap();
        socket::limit(&ours, Duration::from_millis(20)).unwrap();
        let link = Link::new(ours, [0; RANDOM]);
        let import = || Arc::clone(&link).import(&[1; RANDOM]).map(drop);
        socket::send(server.as_fd(), WITHDRAWN, &[]).unwrap();
        assert_eq!(import(), Err(SharingProblem::Withdrawn));
        assert_eq!(import(), Err(SharingProblem::NoAnswer));
        socket::send(server.as_fd(), WITHDRAWN, &[]).unwrap(); // the answer to the second import
        assert_eq!(import(), Err(SharingProblem::NoAnswer), "the third import has no answer");
    }
}
