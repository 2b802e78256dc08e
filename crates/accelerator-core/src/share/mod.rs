//! Memory that this process shares with others.
//!
//! A handle has only the name of a socket of the process that shares the memory, and a secret number. A process that
//! imports the memory connects there and gets everything else, with the file descriptors that its driver needs. It
//! keeps the connection as long as it has memory of the other process mapped, and says when it ends an import. So each
//! side learns when the other one ends, however it ends, and no handle can be stale without an error.
//!
//! [`description`] is what goes over the connection, [`socket`] sends it, [`server`] answers, and [`client`] asks.
//! [`process`] has what a forked child must not use.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems share nothing"))]

#[cfg(target_os = "linux")]
mod client;
mod description;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod socket;

use std::any::Any;
use std::fmt;

#[cfg(target_os = "linux")]
pub(crate) use self::client::{Connection, Source, open};
pub(crate) use self::description::{Description, Export, Form, Piece};
#[cfg(not(target_os = "linux"))]
pub(crate) use self::elsewhere::{Connection, Source, open};
#[cfg(not(target_os = "linux"))]
use self::elsewhere::{Registration, register};
#[cfg(target_os = "linux")]
use self::server::{Registration, register};
use crate::types::SharingProblem;

/// Names a buffer of one process in others, which [import](crate::Accelerator::import) it.
///
/// It is short, and goes to the other process as [bytes](Self::as_bytes), by any means. Only processes of the same user
/// can use it, in the same network namespace. For others, [`send`](Self::send) it over a socket.
///
/// It is valid until the buffer is dropped or its process ends. Whoever has it can read and write the memory, so
/// keep it secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MemoryHandle(Vec<u8>);

/// The beginning of every handle: a word, and the version of what follows.
const MAGIC: &[u8; 4] = b"AMH1";

impl MemoryHandle {
    /// Returns the handle of an offer of a server, whose name and secret have one length.
    fn new(server: &[u8], secret: &[u8]) -> Self {
        Self([MAGIC, server, secret].concat())
    }

    /// Returns the name of the server, and the secret of the offer.
    fn parts<const N: usize>(&self) -> Result<([u8; N], [u8; N]), SharingProblem> {
        let rest = self.0.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(N));
        let parts = rest.and_then(|(server, secret)| Some((server.try_into().ok()?, secret.try_into().ok()?)));
        parts.ok_or(SharingProblem::NotAHandle)
    }

    /// The handle with these bytes. Whether they are a handle turns out when it is used.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// The bytes to pass to the other process, at most 64.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Sends the handle over a Unix socket to a process that [imports](crate::Accelerator::import_from) the memory. It
    /// may have another network namespace, such as that of a container.
    ///
    /// # Errors
    /// [`SharingProblem`]: the process that shares the memory has ended, or the socket does not take the message.
    #[cfg(target_os = "linux")]
    pub fn send(&self, socket: impl std::os::fd::AsFd) -> Result<(), SharingProblem> {
        client::send(self, socket.as_fd())
    }
}

impl fmt::Debug for MemoryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryHandle") // the rest is secret
    }
}

/// Memory of this process that others can import.
///
/// *For programs that manage allocations by [key](crate::AllocationKey).* [`Buffer::share`](crate::Buffer::share) does
/// all of this itself.
#[derive(Debug)]
#[must_use = "nobody can import the memory after this is dropped"]
pub struct SharedMemory {
    registration: Registration,
}

impl SharedMemory {
    /// Offers memory to other processes. `held` is dropped when the memory is neither shared nor imported any more.
    pub(crate) fn new(description: Description, held: Box<dyn Any + Send>) -> Result<Self, SharingProblem> {
        Ok(Self { registration: register(description, held)? })
    }

    /// The handle for other processes.
    pub fn handle(&self) -> &MemoryHandle {
        self.registration.handle()
    }

    /// The number of imports that exist now. A process that ends ends its imports, sooner or later.
    pub fn imports(&self) -> usize {
        self.registration.imports()
    }

    /// Makes the handle invalid. `kept` is dropped when nobody imports the memory any more, which may be at once: pass
    /// a value that frees the memory when it is dropped. That happens on a thread of this library if others import the
    /// memory now.
    pub fn withdraw(self, kept: Box<dyn Any + Send>) {
        self.registration.withdraw(kept);
    }
}
