//! The caching allocator. ARCHITECTURE tells an allocation in numbered steps.
//!
//! From the bottom: [`policy`] is arithmetic; [`block`], [`tree`], [`free_list`] and [`arena`] keep the blocks of one stream,
//! [`account`] counts them, and [`whole`] is what of them can go back; [`ledger`] keeps the books of the device, and [`settle`]
//! brings both together; [`segment`] alone calls the driver for memory; [`pending`] holds what other streams still use; [`ladder`]
//! is what happens on a miss; [`release`] is what gives memory back; [`history`] keeps what happened, and [`attended`] is the way
//! of calls while something is to be done beside the arena's books.

mod account;
mod amounts;
mod arena;
mod attended;
mod block;
mod config;
mod event_queues;
mod free_list;
mod history;
mod hooks;
mod host_settings;
mod in_flight;
mod ladder;
mod ledger;
mod pair;
mod pending;
mod policy;
#[cfg(test)]
mod random;
mod raw;
mod release;
mod report;
mod segment;
mod settings;
mod settle;
mod tree;
mod whole;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::account::NoRoom;
use self::arena::{Arena, Taken};
use self::block::BlockId;
pub use self::config::{AllocatorConfig, RoundupDivisions};
pub(crate) use self::event_queues::EventQueues;
use self::event_queues::PendingBlock;
pub use self::history::{
    CaptureContext, ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording,
};
pub use self::hooks::HookId;
use self::hooks::Hooks;
pub(crate) use self::host_settings::HostSettings;
pub(crate) use self::in_flight::InFlight;
use self::ledger::Ledger;
use self::pending::PendingFrees;
use self::policy::TOO_LARGE;
use self::raw::RawTable;
use crate::backend::Backend;
use crate::event::EventPool;
use crate::stream::{Instance, Stream, Streams};
use crate::sync::{Guard, OwnedLock, Table};
use crate::types::{Error, PoolKind, Result, StreamId};

/// Serves the memory of one device from a cache, by PyTorch's policy to the byte.
///
/// On the same calls from one thread, statistics, segments and blocks equal those of PyTorch's own allocator.
/// Any thread may call anything at any time; no lock that the warm path waits for is held across a driver call or a callback.
pub struct CachingAllocator<B: Backend> {
    owner: Instance,
    backend: &'static B,
    streams: &'static Streams<B>,
    /// By stream number.
    arenas: Table<OwnedLock<Arena<B::Ptr>>>,
    ledger: Ledger,
    pending: PendingFrees<B>,
    /// What new arenas start with. Who holds several arenas has it locked.
    setup: OwnedLock<Setup>,
    /// What of the settings is the pinned host memory's.
    host_settings: Arc<HostSettings>,
    /// Searches of the small and of the large pool since garbage collection was switched on.
    clocks: [AtomicU32; 2],
    hooks: Hooks,
    raw: RawTable<B>,
    /// Segments on their way back to the driver.
    returning: InFlight,
    /// Charged segments that the driver is being asked for.
    asking: InFlight,
}

/// What is the same for all arenas, and who is awake.
struct Setup {
    config: AllocatorConfig,
    recording: Option<Recording>,
    /// The streams whose accounts have something or may add something. Those of all others are empty, and stay so until
    /// [`settled`](CachingAllocator::settled) wakes them up.
    awake: Vec<StreamId>,
}

/// A block that was given out: where it is, and the key to free it again.
///
/// Not a guard: dropped without [`free`](CachingAllocator::free) its memory stays allocated.
/// [`Buffer`](crate::Buffer) frees by itself.
#[must_use = "dropping it leaks the memory: free it, or use a Buffer"]
pub struct Allocation<B: Backend> {
    taken: Taken<B::Ptr>,
    requested: NonZeroU64,
    stream: Stream<B>,
}

impl<B: Backend> Allocation<B> {
    /// Where the memory starts.
    pub fn ptr(&self) -> B::Ptr {
        self.taken.ptr
    }

    /// Bytes of the block: what was asked for, rounded up.
    pub fn size(&self) -> u64 {
        self.taken.size
    }

    /// Bytes that were asked for.
    pub fn requested(&self) -> NonZeroU64 {
        self.requested
    }

    /// The stream that it was allocated on.
    pub fn stream(&self) -> Stream<B> {
        self.stream
    }
}

/// An allocation that was given to another device's allocator to free. Into an [`Error`] it turns without the
/// allocation, whose memory then stays allocated.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct ForeignAllocation<B: Backend> {
    /// The allocation, still allocated.
    pub allocation: Allocation<B>,
    /// [`Error::DeviceMismatch`].
    pub error: Error,
}

impl<B: Backend> From<ForeignAllocation<B>> for Error {
    fn from(foreign: ForeignAllocation<B>) -> Self {
        foreign.error
    }
}

impl<B: Backend> std::fmt::Debug for ForeignAllocation<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForeignAllocation {{ {:?}, {} }}", self.allocation, self.error)
    }
}

impl<B: Backend> std::fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { taken, requested, stream } = self;
        write!(
            f,
            "Allocation {{ {:?}, size: {}, requested: {requested}, {stream:?} }}",
            taken.ptr, taken.size
        )
    }
}

impl<B: Backend> CachingAllocator<B> {
    pub(crate) fn new(
        owner: Instance,
        backend: &'static B,
        streams: &'static Streams<B>,
        config: AllocatorConfig,
    ) -> Self {
        Self {
            owner,
            backend,
            streams,
            arenas: Table::new(),
            ledger: Ledger::new(&config, backend.properties().total_memory),
            pending: PendingFrees::new(EventPool::new(backend)),
            setup: OwnedLock::new(Setup { config, recording: None, awake: Vec::new() }),
            host_settings: Arc::new(HostSettings::new(&config)),
            clocks: [AtomicU32::new(0), AtomicU32::new(0)],
            hooks: Hooks::default(),
            raw: RawTable::default(),
            returning: InFlight::default(),
            asking: InFlight::default(),
        }
    }

    /// Allocates `bytes` bytes for work on `stream`. PyTorch: `raw_alloc_with_stream`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::DeviceMismatch`] for a stream of another device, [`Error::Driver`].
    pub fn allocate(&self, bytes: NonZeroU64, stream: Stream<B>) -> Result<Allocation<B>> {
        stream.check(self.owner)?;
        if bytes.get() >= TOO_LARGE {
            return Err(self.too_large(bytes));
        }
        self.free_what_is_done(stream)?;
        let mut arena = self.arena(stream.id()).lock();
        let request = arena.request(bytes);
        let taken = match arena.plain {
            true => match arena.take(&request, self.clock(request.pool)) {
                Ok(Some(taken)) => taken,
                Ok(None) => self.after_plain_miss(arena, request, stream)?,
                Err(NoRoom) => self.allocate_without_room(arena, request, stream)?,
            },
            false => self.allocate_otherwise(arena, request, stream)?,
        };
        Ok(Allocation { taken, requested: bytes, stream })
    }

    /// Frees an allocation: at once for its own stream, and when they are done for others that used it.
    ///
    /// # Errors
    /// [`ForeignAllocation`] for an allocation of another device, which is handed back. A driver that cannot record an
    /// event is asked again later; that is no error here.
    pub fn free(&self, allocation: Allocation<B>) -> Result<(), ForeignAllocation<B>> {
        if let Err(error) = self.check_owner(&allocation) {
            return Err(ForeignAllocation { allocation, error });
        }
        self.free_block(allocation.stream.id(), allocation.taken.block);
        Ok(())
    }

    /// Notes that `stream` uses the allocation, so that its memory is not reused before that work is done. Of its
    /// own stream this is nothing. PyTorch: `record_stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for an allocation or a stream of another device.
    pub fn record_use(&self, allocation: &Allocation<B>, stream: Stream<B>) -> Result<()> {
        self.check_owner(allocation)?;
        stream.check(self.owner)?;
        if stream != allocation.stream {
            self.arena(allocation.stream.id()).lock().record_use(allocation.taken.block, stream.id());
        }
        Ok(())
    }

    /// Whether it was ever searched for a block: false for an allocator that nobody has used. PyTorch: `initialized`.
    pub fn is_used(&self) -> bool {
        self.arenas.iter().next().is_some()
    }

    /// Limits the memory taken from the driver to this share of the device's; 1: no limit. What is taken already
    /// stays. PyTorch: `set_per_process_memory_fraction`.
    ///
    /// # Errors
    /// [`Error::InvalidFraction`] outside 0..=1.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::InvalidFraction(fraction));
        }
        let total_memory = self.backend.properties().total_memory;
        let mut books = self.ledger.lock();
        books.set_fraction(fraction, total_memory);
        if let Some(recorder) = &mut books.recorder {
            recorder.note(HistoryAction::MemoryFractionChanged(fraction));
        }
        drop(books);
        self.sweep();
        Ok(())
    }

    /// The memory fraction in force. PyTorch: `get_per_process_memory_fraction`.
    pub fn memory_fraction(&self) -> f64 {
        self.ledger.lock().fraction()
    }

    /// The settings in force.
    pub fn config(&self) -> AllocatorConfig {
        self.setup.lock_soon().config
    }

    /// Changes the settings for later calls, also those of the device's pinned host memory. The memory fraction is not
    /// among what changes: it is read when the allocator is made.
    pub fn set_config(&self, config: AllocatorConfig) {
        let mut setup = self.setup.lock_soon();
        setup.config = config;
        self.host_settings.set(&config);
        for arena in self.arenas.iter() {
            arena.lock().configure(config, setup.recording.as_ref());
        }
        if let Some(recorder) = &mut self.ledger.lock().recorder {
            recorder.note(HistoryAction::SettingsChanged(Box::new(config)));
        }
        drop(setup);
        self.sweep();
    }

    pub(crate) fn host_settings(&self) -> Arc<HostSettings> {
        Arc::clone(&self.host_settings)
    }

    #[inline(always)]
    fn free_block(&self, stream: StreamId, block: BlockId) {
        let mut arena = self.arena(stream).lock();
        let clock = self.clock(arena.pool_of(block));
        if !(arena.plain && arena.free_unused(block, clock)) {
            self.free_used(arena, block);
        }
    }

    /// Frees a block that other streams have used.
    #[inline(never)]
    fn free_used(&self, mut arena: Guard<'_, Arena<B::Ptr>>, block: BlockId) {
        let users = if arena.plain { arena.free_when_done(block) } else { None };
        let Some(users) = users else { return self.free_otherwise(arena, block) };
        let (recording, block) =
            (self.pending.recording.begin(), PendingBlock { arena: arena.stream, block });
        drop(arena);
        self.await_uses(recording, block, &users);
    }

    fn arena(&self, stream: StreamId) -> &OwnedLock<Arena<B::Ptr>> {
        match self.arenas.get(stream.get()) {
            Some(arena) => arena,
            None => self.make_arena(stream),
        }
    }

    #[cold]
    fn make_arena(&self, stream: StreamId) -> &OwnedLock<Arena<B::Ptr>> {
        // The lock keeps `set_config` from passing between the copy and the arena's place in the table.
        let setup = self.setup.lock_soon();
        let Setup { config, recording, .. } = &*setup;
        self.arenas
            .get_or_init(stream.get(), || OwnedLock::new(Arena::new(stream, *config, recording.as_ref())))
    }

    fn clock(&self, pool: PoolKind) -> u32 {
        self.clocks[pool as usize].load(Ordering::Relaxed)
    }

    fn check_owner(&self, allocation: &Allocation<B>) -> Result<()> {
        allocation.stream.owner().check(self.owner, "the allocation")
    }

    fn driver_error(&self, source: crate::types::DriverError) -> Error {
        Error::Driver { device: self.owner.device, source }
    }
}

impl<B: Backend> std::fmt::Debug for CachingAllocator<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let statistics = self.statistics();
        let (allocated, reserved) = (statistics.allocated_bytes.all, statistics.reserved_bytes.all);
        write!(
            f,
            "CachingAllocator {{ {}, allocated: {allocated:?}, reserved: {reserved:?} }}",
            self.owner.device
        )
    }
}
