//! The allocator of one device, without the types of its backend, so that it is compiled once for all backends.

#[cfg(debug_assertions)]
mod check;
mod exact;
mod ladder;
mod mem_pools;
mod release;
mod report;
mod share;
mod sleep;
mod slow_path;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use self::exact::PoolState;
use self::share::SharedBlocks;
use crate::alloc::arena::{AllocatedBlock, ArenaId};
use crate::alloc::arenas::Arenas;
use crate::alloc::blocks::{BlockId, CaptureNumber, User};
use crate::alloc::driver::Driver;
use crate::alloc::history::HistoryAction;
use crate::alloc::hooks::Hooks;
use crate::alloc::mem_pools::MemPools;
use crate::alloc::pending::PendingFrees;
use crate::alloc::settings::{AllocatorConfig, HostSettings, TOO_LARGE, in_blocks};
use crate::alloc::source::{Compact, Context, Memory};
use crate::event::Events;
use crate::sync::primitives::Mutex;
use crate::types::{Device, Error, PoolKind, Result, StreamId};

pub(crate) struct DeviceAllocator {
    memory: Memory,
    pending: PendingFrees,
    mem_pools: MemPools,
    /// Held while free memory of private pools goes back, so that no capture begins to use it meanwhile, and no arena
    /// passes from a pool that is gone to a new one.
    reclaiming: Mutex<()>,
    shared_blocks: Arc<SharedBlocks>,
    pub(crate) hooks: Hooks,
    /// The settings for pinned host memory.
    pub(crate) host_settings: Arc<HostSettings>,
    /// Whether the user has been warned that the backend has no virtual memory for expandable segments.
    has_warned: AtomicBool,
}

impl DeviceAllocator {
    pub(crate) fn new(
        device: Device,
        driver: Box<dyn Driver>,
        events: Box<dyn Events>,
        config: AllocatorConfig,
    ) -> Self {
        let total_memory = driver.properties().total_memory;
        let has_virtual_memory = driver.address_space().is_some();
        let arenas = Arenas::new(config, total_memory, has_virtual_memory, |arena| Box::new(Compact::new(arena)));
        Self {
            memory: Memory::new(Context::new(device, driver, events, arenas)),
            pending: PendingFrees::default(),
            mem_pools: MemPools::default(),
            reclaiming: Mutex::default(),
            shared_blocks: Arc::default(),
            hooks: Hooks::new(),
            host_settings: Arc::new(HostSettings::new(&config)),
            has_warned: AtomicBool::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn arenas(&self) -> &Arenas {
        &self.memory.context.arenas
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.memory.context.driver
    }

    /// Returns whether the settings allow the warm path.
    #[inline(always)]
    pub(crate) fn may_be_warm(&self) -> bool {
        self.arenas().may_be_plain()
    }

    /// Returns whether there may be freed blocks that other streams still used when this was last looked at.
    #[inline(always)]
    pub(crate) fn may_have_pending(&self) -> bool {
        self.pending.may_have_any()
    }

    /// Frees the blocks whose uses are over, before an allocation on a stream.
    #[inline(never)]
    pub(crate) fn poll(&self, bytes: NonZeroU64, stream: StreamId) -> Result<()> {
        // A request that is too large changes nothing.
        if bytes.get() >= TOO_LARGE { Ok(()) } else { self.pending.poll(&self.memory, stream) }
    }

    /// Allocates on the warm path: from the cache of the stream, which this thread owns, under default settings.
    /// Returns `None`, with nothing changed, if that does not serve the request.
    #[inline(always)]
    pub(crate) fn allocate_warm<const LARGE: bool>(&self, bytes: u64, stream: StreamId) -> Option<AllocatedBlock> {
        if bytes >= TOO_LARGE {
            return None;
        }
        let mut arena = self.arenas().of_stream(ArenaId::of_stream(stream))?.lock_owned()?;
        if !arena.is_plain() {
            return None;
        }
        let pool = if LARGE { PoolKind::Large } else { PoolKind::Small };
        arena.take_plain::<LARGE>(bytes, in_blocks(bytes), || self.arenas().clock(pool)).ok()?
    }

    /// Allocates what the [warm path](Self::allocate_warm) does not serve, after a [`poll`](Self::poll).
    ///
    /// `typed` gives the block's pointer its type. It is applied in each branch, so that only the parts of the block
    /// that it needs are copied.
    #[inline(always)]
    pub(crate) fn allocate<T>(
        &self,
        bytes: NonZeroU64,
        stream: StreamId,
        typed: impl Fn(AllocatedBlock) -> T,
    ) -> Result<T> {
        if bytes.get() >= TOO_LARGE {
            return Err(self.too_large(bytes));
        }
        if let Some(shared) = self.arenas().shared_in_force()
            && let Some(block) = shared.lock().take_at_once(bytes, stream)
        {
            return Ok(typed(block));
        }
        let arena = self.arenas().of(ArenaId::of_stream(stream)).lock();
        let request = arena.request(bytes);
        self.allocate_on_slow_path((arena, request), stream).map(typed)
    }

    /// Frees a block. On the warm path, it is of the arena of a stream, which this thread owns, under default settings.
    #[inline(never)]
    pub(crate) fn free(&self, arena: ArenaId, block: BlockId) {
        let Some(lock) = self.arenas().of_stream(arena) else { return self.free_elsewhere(arena, block) };
        let Some(mut arena) = lock.lock_owned() else { return self.free_on_slow_path(lock.lock(), block) };
        if !arena.is_plain() {
            return self.free_on_slow_path(arena.into(), block);
        }
        if arena.is_used(block) {
            return self.free_used(arena, block);
        }
        if !arena.free_plain(block, |pool| self.arenas().clock(pool)) {
            self.free_on_slow_path(arena.into(), block);
        }
    }

    /// Records that a stream uses a block. The use is part of a capture if the current stream of this thread captures.
    /// PyTorch: `recordStream`.
    #[inline(always)]
    pub(crate) fn record_use(&self, arena: ArenaId, block: BlockId, stream: StreamId) {
        let user = self.user(stream, Self::current_capture);
        self.arenas().of(arena).lock().record_use(block, user);
    }

    /// As [`record_use`](Self::record_use), for a stream that may be the block's own, whose use needs no record.
    pub(crate) fn record_use_unless_own(&self, arena: ArenaId, block: BlockId, stream: StreamId) {
        let user = self.user(stream, Self::current_capture);
        let mut arena = self.arenas().of(arena).lock();
        if arena.stream_of(block) != stream {
            arena.record_use(block, user);
        }
    }

    /// Returns a stream as the user of a block, as part of the capture that is asked for.
    #[inline(always)]
    fn user(&self, stream: StreamId, ask: impl FnOnce(&Self) -> Result<Option<u64>>) -> User {
        // If the driver does not say whether a use is captured, it is waited for like others.
        User { stream, captured_in: self.known_capture(ask).and_then(CaptureNumber::new) }
    }

    /// Returns the number of the capture that is asked for, if there is one and the driver says so.
    #[inline(always)]
    fn known_capture(&self, ask: impl FnOnce(&Self) -> Result<Option<u64>>) -> Option<u64> {
        if self.pending.has_captures() { ask(self).ok().flatten() } else { None }
    }

    /// Records that work of a stream uses a block. The use is part of a capture if that stream captures.
    #[inline(always)]
    pub(crate) fn record_work(&self, arena: ArenaId, block: BlockId, stream: StreamId) {
        let user = self.user(stream, |device| device.capture_of(stream));
        self.arenas().of(arena).lock().record_use(block, user);
    }

    /// Returns the number of the capture that the work of a stream is part of.
    #[cold]
    fn capture_of(&self, stream: StreamId) -> Result<Option<u64>> {
        let context = &self.memory.context;
        match self.pending.has_captures() {
            true => context.events.capture_of(stream).map_err(|error| context.error(error)),
            false => Ok(None),
        }
    }

    /// Returns whether the work of this thread's current stream is being captured in a graph.
    fn is_current_captured(&self) -> Result<bool> {
        Ok(self.current_capture()?.is_some())
    }

    /// Returns the number of the capture that this thread's current stream takes part in.
    #[cold]
    fn current_capture(&self) -> Result<Option<u64>> {
        let context = &self.memory.context;
        match self.pending.has_captures() {
            true => context.events.current_capture().map_err(|error| context.error(error)),
            false => Ok(None),
        }
    }

    pub(crate) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::InvalidFraction(fraction));
        }
        let mut statistics = self.arenas().statistics();
        statistics.set_fraction(fraction, self.driver().properties().total_memory);
        statistics.note(|| HistoryAction::MemoryFractionChanged(fraction));
        drop(statistics);
        self.arenas().drop_discarded();
        Ok(())
    }

    pub(crate) fn set_config(&self, config: AllocatorConfig) {
        self.arenas().set_config(config, &self.host_settings);
        self.arenas().drop_discarded();
    }
}
