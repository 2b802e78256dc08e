//! The caching allocator. ARCHITECTURE tells an allocation in numbered steps.
//!
//! From the bottom: [`policy`] is arithmetic; [`block`], [`tree`], [`free_list`] and [`arena`] keep the blocks of one stream,
//! [`account`] counts them, and [`whole`] is what of them can go back; [`ledger`] keeps the books of the device, and [`settle`]
//! brings both together; [`segment`] alone calls the driver for memory; [`pending`] holds what other streams still use; [`ladder`]
//! is what happens on a miss; [`release`] is what gives memory back; [`compact`] is a policy of our own; [`history`] keeps what happened, and [`attended`] is the way
//! of calls while something is to be done beside the arena's books.

mod account;
mod allocation;
mod amounts;
mod arena;
mod attended;
mod block;
mod compact;
mod config;
mod event_queues;
mod expandable;
mod free_list;
mod growing;
mod history;
mod hooks;
mod host_settings;
mod in_flight;
mod ladder;
mod ledger;
mod mapping;
mod pages;
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
mod uses;
mod whole;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use self::account::NoRoom;
pub use self::allocation::{Allocation, ForeignAllocation};
use self::arena::Arena;
use self::block::BlockId;
use self::compact::Memory;
pub use self::config::{AllocatorConfig, Policy, RoundupDivisions};
pub(crate) use self::event_queues::EventQueues;
use self::event_queues::PendingBlock;
use self::growing::Growing;
pub use self::history::{
    CaptureContext, ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording,
};
pub use self::hooks::HookId;
use self::hooks::Hooks;
pub(crate) use self::host_settings::HostSettings;
pub(crate) use self::in_flight::InFlight;
use self::ledger::Ledger;
use self::pages::Reservations;
use self::pending::PendingFrees;
use self::policy::TOO_LARGE;
use self::raw::RawTable;
use crate::backend::Backend;
use crate::event::EventPool;
use crate::stream::{Instance, Stream, Streams};
use crate::sync::{Guard, OwnedLock, Table};
use crate::types::{Error, PoolKind, Result, StreamId};

/// Serves the memory of one device from a cache, by PyTorch's policy to the byte, unless [`Policy::Compact`] is set.
///
/// On the same calls from one thread, statistics, segments and blocks equal those of PyTorch's own allocator.
/// Any thread may call anything at any time; no lock that the warm path waits for is held across a driver call or a callback.
pub struct CachingAllocator<B: Backend> {
    owner: Instance,
    backend: &'static B,
    streams: &'static Streams<B>,
    /// By stream number.
    arenas: Table<OwnedLock<Arena<B::Ptr>>>,
    /// That of the policy `compact`.
    shared: OnceLock<OwnedLock<Arena<B::Ptr>>>,
    /// The memory of that policy.
    compact: Mutex<Memory<B>>,
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
    /// The address space of expandable segments, by stream number.
    reservations: Table<Mutex<Reservations<B::Ptr>>>,
    /// Those who take pages from the driver.
    growing: Growing,
    /// Whether it was told that they are asked for and the backend has no virtual memory.
    has_told: AtomicBool,
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

impl<B: Backend> CachingAllocator<B> {
    pub(crate) fn new(
        owner: Instance,
        backend: &'static B,
        streams: &'static Streams<B>,
        config: AllocatorConfig,
    ) -> Self {
        let in_force = mapping::in_force(backend, &config);
        Self {
            owner,
            backend,
            streams,
            arenas: Table::new(),
            shared: OnceLock::new(),
            compact: Mutex::default(),
            ledger: Ledger::new(&in_force, backend.properties().total_memory),
            pending: PendingFrees::new(EventPool::new(backend)),
            setup: OwnedLock::new(Setup { config, recording: None, awake: Vec::new() }),
            host_settings: Arc::new(HostSettings::new(&config)),
            clocks: [AtomicU32::new(0), AtomicU32::new(0)],
            hooks: Hooks::default(),
            raw: RawTable::default(),
            reservations: Table::new(),
            growing: Growing::default(),
            has_told: AtomicBool::new(false),
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
            true => match arena.take::<false>(&request, self.clock(request.pool)) {
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
        self.free_block(allocation.taken.arena, allocation.taken.block);
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
            self.arena(allocation.taken.arena).lock().record_use(allocation.taken.block, stream.id());
        }
        Ok(())
    }

    /// Whether it was ever searched for a block: false for an allocator that nobody has used. PyTorch: `initialized`.
    pub fn is_used(&self) -> bool {
        self.all_arenas().next().is_some()
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
        let in_force = self.in_force(&config);
        for arena in self.all_arenas() {
            arena.lock().configure(in_force, setup.recording.as_ref());
        }
        let mut books = self.ledger.lock();
        books.statistics.expandable_segments = in_force.expandable_segments;
        if let Some(recorder) = &mut books.recorder {
            recorder.note(HistoryAction::SettingsChanged(Box::new(config)));
        }
        drop(books);
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
        if !(arena.plain && arena.free_unused::<false>(block, clock)) {
            self.free_otherwise(arena, block);
        }
    }

    /// Frees a block that other streams have used, or one where segments may be expandable, or something is to be done beside the
    /// books.
    #[inline(never)]
    fn free_otherwise(&self, mut arena: Guard<'_, Arena<B::Ptr>>, block: BlockId) {
        let clock = self.clock(arena.pool_of(block));
        if !arena.attended && !arena.plain && arena.free_unused::<true>(block, clock) {
            return;
        }
        let users = if arena.attended { None } else { arena.free_when_done(block) };
        let Some(users) = users else { return self.free_attended(arena, block) };
        let (recording, block) =
            (self.pending.recording.begin(), PendingBlock { arena: arena.stream, block });
        drop(arena);
        self.await_uses(recording, block, &users);
    }

    fn arena(&self, stream: StreamId) -> &OwnedLock<Arena<B::Ptr>> {
        match self.arenas.get(stream.get()) {
            Some(arena) => arena,
            None => self.shared_or_new(stream),
        }
    }

    #[inline(never)]
    fn shared_or_new(&self, stream: StreamId) -> &OwnedLock<Arena<B::Ptr>> {
        match self.shared.get() {
            Some(shared) if stream == StreamId::SHARED => shared,
            _ => self.make_arena(stream),
        }
    }

    #[cold]
    fn make_arena(&self, stream: StreamId) -> &OwnedLock<Arena<B::Ptr>> {
        // The lock keeps `set_config` from passing between the copy and the arena's place in the table.
        let setup = self.setup.lock_soon();
        let in_force = self.in_force(&setup.config);
        let make = || OwnedLock::new(Arena::new(stream, in_force, setup.recording.as_ref()));
        match stream {
            StreamId::SHARED => self.shared.get_or_init(make),
            _ => self.arenas.get_or_init(stream.get(), make),
        }
    }

    fn all_arenas(&self) -> impl Iterator<Item = &OwnedLock<Arena<B::Ptr>>> {
        self.arenas.iter().chain(self.shared.get())
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
