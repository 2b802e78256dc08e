//! Answers the processes that import memory of this one, and notices when they end.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketFlags, accept_with, bind, listen};

use super::MemoryHandle;
use super::description::{Description, MESSAGE, PIECES};
use super::socket::{self, RANDOM, Secret, WITHDRAWN, failed};
use crate::sync::lock;
use crate::types::SharingProblem;

/// How long the server waits for a process that does not take its answer. The others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// The server of this process, which the first registration starts.
static SERVER: Mutex<Option<Server>> = Mutex::new(None);

#[derive(Clone, Debug)]
struct Server {
    /// The process that started it. A forked child does not have its thread, and needs a server of its own.
    process: u32,
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

/// An offer of this process.
#[derive(Debug)]
pub(super) struct Registration {
    handle: MemoryHandle,
    secret: Secret,
    offers: Arc<Offers>,
}

/// Offers memory to other processes. `held` is dropped with the offer.
pub(super) fn register(description: Description, held: Box<dyn Any + Send>) -> Result<Registration, SharingProblem> {
    let Server { name, offers, .. } = Server::of_this_process()?;
    let secret = socket::random()?;
    let description = Arc::new(description);
    let offer = Offer { description, imports: 0, is_withdrawn: false, held: vec![held] };
    lock(&offers.0).insert(secret, offer);
    Ok(Registration { handle: MemoryHandle::new(&name, &secret), secret, offers })
}

/// Returns whether a server with this name is that of this process.
pub(super) fn is_own(name: &Secret) -> bool {
    lock(&SERVER).as_ref().is_some_and(|server| server.process == std::process::id() && server.name == *name)
}

impl Registration {
    pub(super) fn handle(&self) -> &MemoryHandle {
        &self.handle
    }

    pub(super) fn imports(&self) -> usize {
        lock(&self.offers.0).get(&self.secret).map_or(0, |offer| offer.imports)
    }

    pub(super) fn withdraw(self, kept: Box<dyn Any + Send>) {
        if let Some(offer) = lock(&self.offers.0).get_mut(&self.secret) {
            offer.held.push(kept);
        }
        // Dropping the registration ends the offer.
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.offers.change(&self.secret, |offer| offer.is_withdrawn = true);
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
        let (process, mut server) = (std::process::id(), lock(&SERVER));
        if let Some(server) = server.as_ref().filter(|server| server.process == process) {
            return Ok(server.clone());
        }
        let (name, listener) = (socket::random()?, socket::socket()?);
        bind(&listener, &socket::address(&name)?).map_err(|error| failed("bind", error))?;
        listen(&listener, 128).map_err(|error| failed("listen", error))?;
        let offers = Arc::<Offers>::default();
        let own = Arc::clone(&offers);
        let spawned = thread::Builder::new().name("shared memory".to_owned()).spawn(move || serve(&listener, &own));
        spawned.map_err(|error| SharingProblem::System { call: "clone", code: error.raw_os_error().unwrap_or(0) })?;
        let started = Self { process, name, offers };
        *server = Some(started.clone());
        Ok(started)
    }
}

/// A process that connected, and what it imports.
struct Importer {
    connection: OwnedFd,
    import: Option<Import>,
}

/// Memory that is imported. Dropping this ends the import.
struct Import {
    secret: Secret,
    offers: Arc<Offers>,
}

impl Drop for Import {
    fn drop(&mut self) {
        self.offers.change(&self.secret, |offer| offer.imports -= 1);
    }
}

/// Answers until the process ends.
fn serve(listener: &OwnedFd, offers: &Arc<Offers>) {
    let mut importers: Vec<Importer> = Vec::new();
    loop {
        let of_importers = importers.iter().map(|importer| PollFd::new(&importer.connection, PollFlags::IN));
        let mut all: Vec<_> = std::iter::once(PollFd::new(listener, PollFlags::IN)).chain(of_importers).collect();
        let _ = poll(&mut all, None); // an interrupted call found nothing
        let mut is_ready = all.iter().map(|one| !one.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let connects = is_ready.next() == Some(true);
        importers.retain_mut(|importer| is_ready.next() != Some(true) || importer.answer(offers));
        if connects {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(connection) if socket::is_trusted(&connection) && socket::limit(&connection, PATIENCE).is_ok() => {
                    importers.push(Importer { connection, import: None });
                }
                Ok(_) => {}                                         // closing the connection is the answer
                Err(_) => thread::sleep(Duration::from_millis(10)), // perhaps too many files are open
            }
        }
    }
}

impl Importer {
    /// Reads what the process sent: a secret, and nothing more until it closes the connection. Returns whether the
    /// connection goes on.
    fn answer(&mut self, offers: &Arc<Offers>) -> bool {
        if self.import.is_some() {
            return false;
        }
        let connection = self.connection.as_fd();
        let received = socket::receive(connection, RANDOM);
        let Some(secret) = received.ok().and_then(|(bytes, _)| Secret::try_from(bytes).ok()) else { return false };
        let Some((import, description)) = offers.import(secret) else {
            let _ = socket::send(connection, WITHDRAWN, &[]); // the process may have ended meanwhile
            return false;
        };
        self.import = Some(import);
        send(connection, &description).is_ok()
    }
}

/// Sends a description, with the descriptors of its files.
fn send(to: BorrowedFd<'_>, description: &Description) -> Result<(), SharingProblem> {
    socket::send(to, &description.head(), &[])?;
    description.pieces.chunks(PIECES).try_for_each(|pieces| {
        let mut message = Vec::with_capacity(MESSAGE);
        pieces.iter().for_each(|piece| piece.write(&mut message));
        let files: Vec<_> = pieces.iter().filter_map(|piece| piece.exported.file.as_ref()).map(AsFd::as_fd).collect();
        socket::send(to, &message, &files)
    })
}
