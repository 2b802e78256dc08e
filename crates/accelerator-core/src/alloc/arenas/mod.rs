//! The arenas of a device, their common settings, and the device statistics.

#[cfg(debug_assertions)]
mod check;
mod entered;
mod gathered;
mod held;
mod history;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod private;

use std::sync::OnceLock;

pub(crate) use self::entered::{Entered, Parameters, settled};
pub(crate) use self::held::Held;
use super::arena::{Arena, ArenaId, Placement};
use super::history::{HistoryAction, Recording};
use super::settings::{AllocatorConfig, HostSettings, Policy};
use super::stats::DeviceStatistics;
use crate::sync::primitives::IS_MODEL;
use crate::sync::primitives::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Gate, Guard, OwnedLock, Table};
use crate::types::{PoolKind, StreamId};

/// How many blocks memory is prepared for when a device is opened. A block takes 64 bytes.
const PREPARED_BLOCKS: usize = if IS_MODEL { 4 } else { 4096 };

pub(crate) struct Arenas {
    /// Indexed by stream number.
    of_streams: Table<OwnedLock<Arena>>,
    /// The arena that all streams share.
    shared: OnceLock<OwnedLock<Arena>>,
    /// Whether the settings make all streams share an arena. Calls check this before they lock any.
    shares: AtomicBool,
    /// Whether the settings are [plain](AllocatorConfig::is_plain). The warm path checks this before it locks an arena.
    plain: AtomicBool,
    /// The arenas of private pools: one for each stream that uses the pool.
    of_pools: Table<OfPool>,
    make_placement: fn(ArenaId) -> Box<dyn Placement>,
    /// The initial state of new arenas. A thread that holds several arenas also holds this lock.
    setup: OwnedLock<Setup>,
    statistics: OwnedLock<DeviceStatistics>,
    /// The number of searches in the small and large pool since garbage collection was switched on.
    clocks: [AtomicU32; 2],
    /// Whether the backend has virtual memory.
    has_virtual_memory: bool,
}

/// An arena of a private pool.
struct OfPool {
    arena: OwnedLock<Arena>,
    /// Closed while the pool is paused.
    gate: Gate,
}

/// The common state of all arenas, and the list of active ones.
struct Setup {
    config: AllocatorConfig,
    recording: Option<Recording>,
    /// The arena of the default stream until it is first used, with memory for its first blocks.
    prepared: Option<Arena>,
    /// Whether requests may have to go to private pools.
    routed: bool,
    /// The numbers of arenas whose private pool is gone, for other pools: those for one stream, and those for all.
    vacant: [Vec<u32>; 2],
    /// The arenas whose counters are not 0 or have headroom. The counters of all others stay at 0 until
    /// [`Entered::settle`] makes them active.
    active: Vec<ArenaId>,
    /// Counts the operations that gather headroom, from 0 to [`LEFT_TO_SETTLE`](gathered).
    gathered: u32,
}

impl Arenas {
    /// `make_placement` creates the placement of an arena that all streams share.
    pub(crate) fn new(
        config: AllocatorConfig,
        total_memory: u64,
        has_virtual_memory: bool,
        make_placement: fn(ArenaId) -> Box<dyn Placement>,
    ) -> Self {
        let in_force = in_force(&config, has_virtual_memory);
        let mut prepared = Arena::new(ArenaId::of_stream(StreamId::DEFAULT), StreamId::DEFAULT, None, in_force, None);
        prepared.prepare(PREPARED_BLOCKS);
        Self {
            of_streams: Table::default(),
            shared: OnceLock::new(),
            shares: AtomicBool::new(in_force.policy == Policy::Compact),
            plain: AtomicBool::new(in_force.is_plain()),
            of_pools: Table::default(),
            make_placement,
            setup: OwnedLock::new(Setup {
                config,
                recording: None,
                prepared: Some(prepared),
                routed: false,
                vacant: Default::default(),
                active: Vec::new(),
                gathered: 0,
            }),
            statistics: OwnedLock::new(DeviceStatistics::new(&in_force, total_memory)),
            clocks: [AtomicU32::new(0), AtomicU32::new(0)],
            has_virtual_memory,
        }
    }

    /// Returns an arena, creating it at first use.
    #[inline(always)]
    pub(crate) fn of(&self, id: ArenaId) -> &OwnedLock<Arena> {
        match self.of_stream(id) {
            Some(arena) => arena,
            None => self.of_others(id),
        }
    }

    /// Returns an arena if it is a stream's own, and exists.
    #[inline(always)]
    pub(crate) fn of_stream(&self, id: ArenaId) -> Option<&OwnedLock<Arena>> {
        self.of_streams.get(id.get())
    }

    /// As [`of`](Self::of), for an arena that is not [a stream's own](Self::of_stream) or does not exist.
    #[inline]
    pub(crate) fn of_others(&self, id: ArenaId) -> &OwnedLock<Arena> {
        if let Some(shared) = self.shared.get().filter(|_| id == ArenaId::SHARED) {
            return shared;
        }
        self.private_or_new(id)
    }

    #[inline(never)]
    fn private_or_new(&self, id: ArenaId) -> &OwnedLock<Arena> {
        let of_pool = id.number_of_private().and_then(|number| self.of_pools.get(number));
        of_pool.map_or_else(|| self.make(id), |of_pool| &of_pool.arena)
    }

    #[cold]
    fn make(&self, id: ArenaId) -> &OwnedLock<Arena> {
        // The lock keeps `set_config` from running between this copy and the arena's insertion into the table.
        let mut setup = self.setup.lock_soon();
        let prepared = setup.prepared.take_if(|arena| arena.id() == id);
        let (config, recording) = (in_force(&setup.config, self.has_virtual_memory), setup.recording);
        let make = |stream, placement| {
            let mut arena = match prepared {
                None => Arena::new(id, stream, placement, config, recording),
                Some(mut prepared) => {
                    prepared.configure(config, recording);
                    prepared
                }
            };
            arena.set_routed(setup.routed && id.number_of_private().is_none());
            OwnedLock::new(arena)
        };
        match id {
            ArenaId::SHARED => self.shared.get_or_init(|| make(StreamId::SHARED, Some((self.make_placement)(id)))),
            _ => self.of_streams.get_or_init(id.get(), || make(StreamId::new(id.get()), None)),
        }
    }

    /// Returns the arenas of single streams.
    pub(crate) fn of_streams(&self) -> impl Iterator<Item = &OwnedLock<Arena>> {
        self.of_streams.iter()
    }

    /// Returns the arena that all streams share, if it was ever used.
    pub(crate) fn shared(&self) -> Option<&OwnedLock<Arena>> {
        self.shared.get()
    }

    /// Returns the arena that all streams share, if it was ever used and the settings make them share it.
    #[inline(always)]
    pub(crate) fn shared_in_force(&self) -> Option<&OwnedLock<Arena>> {
        if self.shares.load(Ordering::Relaxed) { self.shared.get() } else { None }
    }

    /// Returns whether arenas may be plain. Each arena has its own settings, in case they change just now.
    #[inline(always)]
    pub(crate) fn may_be_plain(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &OwnedLock<Arena>> {
        self.of_streams().chain(self.shared()).chain(self.of_pools.iter().map(|of_pool| &of_pool.arena))
    }

    #[inline(always)]
    pub(crate) fn clock(&self, pool: PoolKind) -> u32 {
        self.clocks[pool as usize].load(Ordering::Relaxed)
    }

    /// Counts a search, to measure the age of free blocks, while garbage collection is on. PyTorch:
    /// `get_free_blocks_call_count`.
    pub(crate) fn tick(&self, arena: &Arena, pool: PoolKind) -> u32 {
        if self.counts_searches(arena) { self.count_search(pool) } else { self.clock(pool) }
    }

    /// Returns whether searches of this arena are counted. Those of private pools are not.
    #[inline(always)]
    pub(crate) fn counts_searches(&self, arena: &Arena) -> bool {
        arena.config().collects() && arena.mem_pool().is_default() && self.statistics().limit.is_some()
    }

    /// Counts a search. Returns the number of searches so far.
    pub(crate) fn count_search(&self, pool: PoolKind) -> u32 {
        self.clocks[pool as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Locks and returns the device statistics.
    pub(crate) fn statistics(&self) -> Guard<'_, DeviceStatistics> {
        self.statistics.lock_soon()
    }

    /// Drops the contexts that the recorder has discarded. Dropping them may run arbitrary user code, so this must come
    /// at the end of a call, with no lock held and no step in flight that another thread waits for.
    pub(crate) fn drop_discarded(&self) {
        let discarded = self.statistics().discarded();
        drop(discarded);
    }

    /// Returns the settings that were set last.
    pub(crate) fn config(&self) -> AllocatorConfig {
        self.setup.lock_soon().config
    }

    /// Changes the settings of all arenas and of pinned host memory.
    pub(crate) fn set_config(&self, config: AllocatorConfig, pinned: &HostSettings) {
        let mut setup = self.setup.lock_soon();
        setup.config = config;
        pinned.set(&config);
        let in_force = in_force(&config, self.has_virtual_memory);
        self.shares.store(in_force.policy == Policy::Compact, Ordering::Relaxed);
        self.plain.store(in_force.is_plain(), Ordering::Relaxed);
        for arena in self.all() {
            arena.lock().configure(in_force, setup.recording);
        }
        let mut statistics = self.statistics();
        statistics.totals.expandable_segments = in_force.expandable_segments;
        statistics.note(|| HistoryAction::SettingsChanged(Box::new(config)));
    }
}

/// Returns the settings in force. There are no expandable segments without virtual memory. Without caching, there are
/// neither expandable segments nor the policy `compact`.
fn in_force(config: &AllocatorConfig, has_virtual_memory: bool) -> AllocatorConfig {
    let policy = if config.caching { config.policy } else { Policy::Pytorch };
    let expands = config.expandable_segments && config.caching && has_virtual_memory;
    let expandable_segments = expands && policy == Policy::Pytorch;
    AllocatorConfig { expandable_segments, policy, ..*config }
}
