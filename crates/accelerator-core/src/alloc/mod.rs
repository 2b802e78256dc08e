//! The caching allocator. ARCHITECTURE tells an allocation in numbered steps.
//!
//! From the bottom: [`policy`] is arithmetic; [`block`], [`free_list`] and [`arena`] keep the books of one stream;
//! [`ledger`] those of the device; [`segment`] alone calls the driver for memory; [`pending`] holds what other
//! streams still use; [`ladder`] is what happens on a miss; [`release`] is what gives memory back; [`history`] keeps what
//! happened, and [`attended`] is the way of calls while something is to be done beside the books.

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
mod pending;
mod policy;
mod raw;
mod release;
mod report;
mod segment;
mod settings;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::arena::{Arena, Freed, Taken};
use self::block::BlockId;
pub use self::config::{AllocatorConfig, RoundupDivisions};
pub(crate) use self::event_queues::EventQueues;
pub use self::history::{
    CaptureContext, ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording,
};
pub use self::hooks::HookId;
use self::hooks::Hooks;
pub(crate) use self::host_settings::HostSettings;
pub(crate) use self::in_flight::InFlight;
use self::ladder::Asked;
use self::ledger::Ledger;
use self::pending::PendingFrees;
use self::policy::TOO_LARGE;
use self::raw::RawTable;
use crate::backend::Backend;
use crate::event::EventPool;
use crate::stream::{Instance, Stream, Streams};
use crate::sync::{Table, lock};
use crate::types::{Error, PoolKind, Result, Statistics, StreamId};

/// Serves the memory of one device from a cache, by PyTorch's policy to the byte.
///
/// On the same calls from one thread, statistics, segments and blocks equal those of PyTorch's own allocator.
/// Any thread may call anything at any time; no lock is held across a driver call or a callback.
pub struct CachingAllocator<B: Backend> {
    owner: Instance,
    backend: &'static B,
    streams: &'static Streams<B>,
    /// By stream number.
    arenas: Table<Mutex<Arena<B::Ptr>>>,
    ledger: Ledger,
    pending: PendingFrees<B>,
    /// What new arenas start with.
    setup: Mutex<Setup>,
    /// What of the settings is the pinned host memory's.
    host_settings: Arc<HostSettings>,
    /// Searches of the small and of the large pool since garbage collection was switched on.
    clocks: [AtomicU64; 2],
    hooks: Hooks,
    raw: RawTable<B>,
    /// Segments on their way back to the driver.
    returning: InFlight,
    /// Charged segments that the driver is being asked for.
    asking: InFlight,
}

/// What is the same for all arenas.
struct Setup {
    config: AllocatorConfig,
    recording: Option<Recording>,
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
            setup: Mutex::new(Setup { config, recording: None }),
            host_settings: Arc::new(HostSettings::new(&config)),
            clocks: [AtomicU64::new(0), AtomicU64::new(0)],
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
        let mut arena = lock(self.arena(stream.id()));
        let request = arena.config.request(bytes.get());
        let taken = if arena.plain {
            let clock = self.clock(request.pool);
            let taken = arena.take(&request, clock, &mut self.ledger.lock());
            drop(arena);
            match taken {
                Some(taken) => taken,
                None => self.after_miss(Asked { request, stream, context: None })?,
            }
        } else {
            self.allocate_attended(arena, request, stream)?
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
            lock(self.arena(allocation.stream.id())).record_use(allocation.taken.block, stream.id());
        }
        Ok(())
    }

    /// Whether it was ever searched for a block: false for an allocator that nobody has used. PyTorch: `initialized`.
    pub fn is_used(&self) -> bool {
        self.arenas.iter().next().is_some()
    }

    /// Everything counted so far. Consistent, also while other threads allocate.
    ///
    /// A peak is that of the sums over all threads, in the order in which their calls entered the books.
    pub fn statistics(&self) -> Statistics {
        self.ledger.lock().statistics
    }

    /// Sets every peak to the current value. PyTorch: `reset_peak_memory_stats`.
    pub fn reset_peak_statistics(&self) {
        self.ledger.lock().statistics.reset_peak();
    }

    /// Sets the accumulated values and the counters of events to 0. PyTorch: `reset_accumulated_memory_stats`.
    pub fn reset_accumulated_statistics(&self) {
        self.ledger.lock().statistics.reset_accumulated();
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
        lock(&self.setup).config
    }

    /// Changes the settings for later calls, also those of the device's pinned host memory. The memory fraction is not
    /// among what changes: it is read when the allocator is made.
    pub fn set_config(&self, config: AllocatorConfig) {
        let mut setup = lock(&self.setup);
        setup.config = config;
        self.host_settings.set(&config);
        for arena in self.arenas.iter() {
            lock(arena).configure(config, setup.recording.as_ref());
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

    fn free_block(&self, arena_id: StreamId, block: BlockId) {
        let mut arena = lock(self.arena(arena_id));
        if !arena.plain {
            return self.free_attended(arena, block);
        }
        let clock = self.clock(arena.pool_of(block));
        let freed = arena.free(block, clock, &mut self.ledger.lock());
        if let Freed::WhenDone(uses) = freed {
            let _recording = self.pending.recording.begin();
            drop(arena);
            self.await_uses(arena_id, block, uses);
        }
    }

    fn arena(&self, stream: StreamId) -> &Mutex<Arena<B::Ptr>> {
        match self.arenas.get(stream.get()) {
            Some(arena) => arena,
            None => self.make_arena(stream),
        }
    }

    #[cold]
    fn make_arena(&self, stream: StreamId) -> &Mutex<Arena<B::Ptr>> {
        // The lock keeps `set_config` from passing between the copy and the arena's place in the table.
        let setup = lock(&self.setup);
        let Setup { config, recording } = &*setup;
        self.arenas.get_or_init(stream.get(), || Mutex::new(Arena::new(stream, *config, recording.as_ref())))
    }

    fn clock(&self, pool: PoolKind) -> u64 {
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
