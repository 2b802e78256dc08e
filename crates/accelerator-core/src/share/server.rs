//! Answers the processes that import memory of this one, and notices when they end.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, listen};

use super::MemoryHandle;
use super::description::{Description, MESSAGE, PIECES};
use super::process::{self, OfProcess};
use super::socket::{self, Request, Secret, WITHDRAWN, failed};
use crate::sync::lock;
use crate::types::SharingProblem;

/// How long the server waits for a process that does not take its answer. The others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// The server of a process, which its first registration starts.
#[derive(Clone, Debug)]
pub(super) struct Server {
    name: Secret,
    offers: Arc<Offers>,
}

/// What is shared, by its secret.
#[derive(Debug, Default)]
struct Offers(Mutex<HashMap<Secret, Offer>>);

#[derive(Debug)]
struct Offer {
    description: Arc<Description>,
    imports: usize,
    is_withdrawn: bool,
    /// What is dropped with the offer.
    held: Vec<Box<dyn Any + Send>>,
}

/// An offer of a process.
#[derive(Debug)]
pub(super) struct Registration {
    process: u32,
    handle: MemoryHandle,
    secret: Secret,
    offers: Arc<Offers>,
}

/// Offers memory to other processes. `held` is dropped with the offer.
pub(super) fn register(description: Description, held: Box<dyn Any + Send>) -> Result<Registration, SharingProblem> {
    let Server { name, offers } = Server::of_this_process()?;
    let secret = socket::random()?;
    let description = Arc::new(description);
    let offer = Offer { description, imports: 0, is_withdrawn: false, held: vec![held] };
    lock(&offers.0).insert(secret, offer);
    let handle = MemoryHandle::new(&name, &secret);
    Ok(Registration { process: std::process::id(), handle, secret, offers })
}

/// Returns whether a server with this name is that of this process.
pub(super) fn is_own(name: &Secret) -> bool {
    lock(&OfProcess::this().server).as_ref().is_some_and(|server| server.name == *name)
}

impl Registration {
    pub(super) fn handle(&self) -> &MemoryHandle {
        &self.handle
    }

    pub(super) fn imports(&self) -> usize {
        self.offers().and_then(|offers| Some(lock(&offers.0).get(&self.secret)?.imports)).unwrap_or(0)
    }

    pub(super) fn withdraw(self, kept: Box<dyn Any + Send>) {
        if let Some(offers) = self.offers()
            && let Some(offer) = lock(&offers.0).get_mut(&self.secret)
        {
            offer.held.push(kept);
        }
        // Dropping the registration ends the offer.
    }

    /// Returns the offers, unless they are those of the process that forked this one.
    fn offers(&self) -> Option<&Offers> {
        process::is_this(self.process).then_some(&*self.offers)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(offers) = self.offers() {
            offers.change(&self.secret, |offer| offer.is_withdrawn = true);
        }
    }
}

impl Offers {
    /// Changes an offer, and removes it if it is withdrawn and not imported. What it held is dropped without the lock.
    fn change(&self, secret: &Secret, change: impl FnOnce(&mut Offer)) {
        let mut all = lock(&self.0);
        let Some(offer) = all.get_mut(secret) else { return };
        change(offer);
        let is_over = offer.is_withdrawn && offer.imports == 0;
        let removed = is_over.then(|| all.remove(secret));
        drop(all);
        drop(removed);
    }

    /// Begins an import. Returns what is imported, or `None` if it is not offered.
    fn import(self: &Arc<Self>, secret: Secret) -> Option<(Import, Arc<Description>)> {
        let mut all = lock(&self.0);
        let offer = all.get_mut(&secret).filter(|offer| !offer.is_withdrawn)?;
        offer.imports += 1;
        Some((Import { secret, offers: Arc::clone(self) }, Arc::clone(&offer.description)))
    }
}

impl Server {
    fn of_this_process() -> Result<Self, SharingProblem> {
        let mut server = lock(&OfProcess::this().server);
        if let Some(server) = &*server {
            return Ok(server.clone());
        }
        let (name, listener) = (socket::random()?, socket::socket()?);
        bind(&listener, &socket::address(&name)?).map_err(|error| failed("bind", error))?;
        listen(&listener, 128).map_err(|error| failed("listen", error))?;
        let offers = Arc::<Offers>::default();
        let own = Arc::clone(&offers);
        let spawned = thread::Builder::new().name("shared memory".to_owned()).spawn(move || serve(&listener, &own));
        spawned.map_err(|error| SharingProblem::System { call: "clone", code: error.raw_os_error().unwrap_or(0) })?;
        let started = Self { name, offers };
        *server = Some(started.clone());
        Ok(started)
    }
}

/// A process that connected, and what it imports.
struct Importer {
    /// Until it is closed.
    connection: Option<OwnedFd>,
    /// Readable once the process has ended, and with it all work of its devices. Systems before Linux 5.3 have no such
    /// descriptors. It is watched beside the connection, which a forked child of the process may keep open.
    process: Option<OwnedFd>,
    /// By the numbers that the process gave them.
    imports: HashMap<u64, Import>,
}

/// Memory that is imported. Dropping this ends the import.
struct Import {
    secret: Secret,
    offers: Arc<Offers>,
}

impl Drop for Import {
    fn drop(&mut self) {
        // What an offer holds is the program's, and must not end the server.
        let end = || self.offers.change(&self.secret, |offer| offer.imports -= 1);
        let _ = catch_unwind(AssertUnwindSafe(end));
    }
}

/// Answers until the process ends.
fn serve(listener: &OwnedFd, offers: &Arc<Offers>) {
    /// How long to wait when the system lacks something, such as descriptors.
    const PAUSE: Duration = Duration::from_millis(10);
    let mut importers: Vec<Importer> = Vec::new();
    loop {
        let watched = std::iter::once(listener).chain(importers.iter().flat_map(Importer::watched));
        let mut all: Vec<_> = watched.map(|one| PollFd::new(one, PollFlags::IN)).collect();
        if poll(&mut all, None).is_err_and(|error| error != Errno::INTR) {
            thread::sleep(PAUSE);
        }
        let mut is_ready = all.iter().map(|one| !one.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let connects = is_ready.next() == Some(true);
        importers.retain_mut(|importer| {
            let asks = importer.connection.is_some() && is_ready.next() == Some(true);
            let has_ended = importer.process.is_some() && is_ready.next() == Some(true);
            !has_ended && (!asks || importer.answer(offers))
        });
        if connects {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(connection) if socket::is_trusted(&connection) && socket::limit(&connection, PATIENCE).is_ok() => {
                    importers.push(Importer::new(connection));
                }
                Ok(_) => {} // closing the connection is the answer
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

impl Importer {
    fn new(connection: OwnedFd) -> Self {
        Self { connection: Some(connection), process: None, imports: HashMap::new() }
    }

    /// Returns the descriptors that say when there is something to do: the connection, and then the process.
    fn watched(&self) -> impl Iterator<Item = &OwnedFd> {
        self.connection.iter().chain(&self.process)
    }

    /// Does what the process asks for. Returns whether there is still something to watch.
    fn answer(&mut self, offers: &Arc<Offers>) -> bool {
        let Some(connection) = self.connection.as_ref().map(AsFd::as_fd) else { return true };
        let received = socket::receive(connection, Request::LEN);
        let asked = received.ok().and_then(|(bytes, files)| Some((Request::from_bytes(&bytes)?, files)));
        match asked {
            Some((Request { number, secret: None }, _)) => drop(self.imports.remove(&number)),
            Some((Request { number, secret: Some(secret) }, files)) => {
                self.process = files.into_iter().next().or_else(|| self.process.take());
                match offers.import(secret) {
                    Some((import, description)) => {
                        self.imports.insert(number, import);
                        let _ = send(connection, &description); // the process ends an import without an answer
                    }
                    None => _ = socket::send(connection, WITHDRAWN, &[]),
                }
            }
            // A process that ends closes its connections before its devices stop.
            None => {
                self.connection = None;
                return self.process.is_some() && !self.imports.is_empty();
            }
        }
        true
    }
}

/// Sends a description, with the descriptors of its files.
fn send(to: BorrowedFd<'_>, description: &Description) -> Result<(), SharingProblem> {
    socket::send(to, &description.head(), &[])?;
    description.pieces.chunks(PIECES).try_for_each(|pieces| {
        let mut message = Vec::with_capacity(MESSAGE);
        pieces.iter().for_each(|piece| piece.write(&mut message));
        let files: Vec<_> =
            pieces.iter().filter_map(|piece| piece.export.exported.file.as_ref()).map(AsFd::as_fd).collect();
        socket::send(to, &message, &files)
    })
}
