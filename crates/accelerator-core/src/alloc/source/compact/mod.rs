//! The policy `compact`, which reserves little more memory than the peak of requested memory.
//! `docs/architecture/compact.md` explains it from the start.
//!
//! The blocks of all streams are in one arena, [`ArenaId::SHARED`], and those of a private pool in another. The
//! modules, each of which imports only from those above it:
//!
//! * [`placement_log`] records where earlier requests went; [`owners`] decides which stream may use a free block.
//! * [`ranges`] has the chunks of memory, each at its own address; [`aliases`] has the alias ranges, where several
//!   chunks are mapped a second time, one after another. [`place`] finds and allocates bytes in both.
//! * [`cost_model`] is arithmetic; [`plan`] decides what a miss does.
//! * [`epochs`] polls the driver's events; [`grow`] and [`release`] carry plans out.
//! * [`export`] is for other processes.
//! * [`segments`] is the variant without virtual memory.

mod aliases;
#[cfg(debug_assertions)]
mod check;
mod cost_model;
mod epochs;
mod export;
mod grow;
mod owners;
mod place;
mod placement_log;
mod plan;
mod ranges;
mod release;
mod segments;

use std::collections::BTreeMap;

use self::aliases::AliasRange;
pub use self::cost_model::ChunkLengths;
use self::cost_model::{CostModel, Effort};
use self::epochs::{Mapped, Mapper};
use self::owners::Owners;
use self::ranges::ReservedRange;
use self::segments::SegmentKind;
use super::context::{Context, Failure, Grown};
use super::interface::{Entry, Source, Wanted};
use crate::alloc::arena::{AllocatedBlock, Arena, ArenaId, FreeLists, Store};
#[cfg(test)]
use crate::alloc::blocks;
use crate::alloc::blocks::PageRange;
use crate::alloc::settings::{Policy, Request};
use crate::share::Piece;
use crate::sync::primitives::{Mutex, lock};
use crate::sync::{OwnedLock, Table};
use crate::types::{DriverResult, OutOfMemoryCause, PoolKind, Result, StreamId};

/// The largest rounded request in the small pool. PyTorch's policy uses 1 MiB; with this smaller limit, less memory is
/// idle in one pool while the other is at its peak.
const SMALL_SIZE: u64 = 64 << 10;

/// The state of the policy's arena.
#[derive(Debug, Default)]
pub(crate) struct Compact {
    store: Store,
    owners: Owners,
    ranges: Vec<ReservedRange>,
    /// The lengths of the chunks of each pool, by position.
    chunks: [BTreeMap<u64, u64>; 2],
    /// Keyed by start position.
    aliases: BTreeMap<u64, AliasRange>,
    /// The total length of all alias ranges.
    aliased: u64,
    costs: CostModel,
    /// If room is tight, the page size less one; otherwise 0. Requests for whole pages are then put at the start of a
    /// page, so that the pages are free again when the request is.
    within_page: u64,
    /// Whether room is tight on a device without virtual memory. Large requests then have segments of their own.
    separates: bool,
    /// Which requests a segment serves then, by its number.
    kinds: Vec<SegmentKind>,
    /// How often an alias was used.
    uses: u64,
}

impl Compact {
    pub(crate) fn new(arena: ArenaId) -> Self {
        let store = Store::new(arena, StreamId::SHARED, FreeLists::by_position());
        Self { store, ..Self::default() }
    }

    /// The state of an arena without memory, in which so many streams are owners.
    #[cfg(test)]
    fn with_owners(count: blocks::Owner) -> Self {
        let mut compact = Self::new(ArenaId::SHARED);
        for owner in 0..count {
            assert_eq!(compact.owners.number_or_new(StreamId(u32::from(owner))), Some(owner));
            compact.store.free.add_owner(owner);
        }
        compact
    }

    /// Adds a segment of the large pool, with which this owner has just finished. Returns its block.
    #[cfg(test)]
    fn add_free(&mut self, size: u64, owner: blocks::Owner) -> blocks::BlockId {
        let segment = blocks::Segment::new(blocks::Base::unused(), size, 0, PoolKind::Large, None);
        let block = self.store.blocks.add_segment(segment, blocks::State::Free);
        self.put_free(block, owner);
        block
    }

    /// Returns the state of this policy's arena.
    fn of(arena: &mut Arena) -> &mut Self {
        arena.placement()
    }
}

/// The memory of the policy.
#[derive(Default)]
pub(crate) struct CompactSource {
    /// The mappings of the shared arena. They are locked while the driver maps or unmaps. Only threads that need new
    /// memory, or give memory back, wait for that.
    shared: Mutex<Mapped>,
    /// The mappings of each private pool's arena, indexed by its number among them.
    of_pools: Table<Mutex<Mapped>>,
}

impl CompactSource {
    fn mapped(&self, arena: ArenaId) -> &Mutex<Mapped> {
        let of_pool = arena.number_of_private().map(|number| self.of_pools.get_or_init(number, Mutex::default));
        of_pool.unwrap_or(&self.shared)
    }
}

impl Source for CompactSource {
    fn serves(&self, arena: &Arena) -> bool {
        arena.is_shared()
    }

    /// Under this policy the arena is the shared one of the device or of the private pool, unless there are too many
    /// streams.
    fn enter<'a>(&self, context: &'a Context, (arena, request): Entry<'a>, stream: StreamId) -> Entry<'a> {
        let shared = match arena.is_shared() {
            true => arena.id(), // of a private pool, even if another thread has just changed the policy
            false if arena.config().policy == Policy::Compact => ArenaId::SHARED,
            false => return (arena, request),
        };
        drop(arena);
        let entry = self.enter_shared(context, shared, request, stream);
        entry.unwrap_or_else(|| (context.arenas.of(ArenaId::of_stream(stream)).lock(), request))
    }

    fn segment_size(&self, context: &Context, arena: &Arena, request: &Request) -> u64 {
        match context.driver.address_space() {
            Some(driver) => request.size.next_multiple_of(driver.granularity().get()),
            None => arena.config().segment(request, context.driver.properties().largest_allocation),
        }
    }

    fn is_hopeless(&self, context: &Context, size: u64) -> bool {
        let properties = context.driver.properties();
        match context.driver.address_space() {
            Some(_) => size > properties.total_memory,
            None => size > properties.largest_allocation,
        }
    }

    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Grown {
        if wanted.parameters.request.size > context.driver.properties().total_memory {
            return Err(Failure::Refused(OutOfMemoryCause::Device)); // before planning a huge list of chunks
        }
        let arena = wanted.parameters.arena;
        let mut mapper = Mapper { context, arena, mapped: lock(self.mapped(arena)) };
        mapper.end_epochs(wanted.parameters.stream, true);
        let mut grown = mapper.carry_out(&wanted.parameters, Effort::LongRun);
        for effort in [Effort::Exact, Effort::Utmost] {
            // Segments cannot be combined, so for them the two efforts are the same.
            let is_new = effort == Effort::Exact || context.driver.address_space().is_some();
            if is_new && matches!(grown, Err(Failure::Refused(_))) {
                grown = mapper.carry_out(&wanted.parameters, effort);
            }
        }
        grown
    }

    fn export(&self, context: &Context, arena: ArenaId, bytes: PageRange) -> Option<DriverResult<(Vec<Piece>, u64)>> {
        self.export_chunks(context, arena, bytes)
    }

    fn last_resort(&self, context: &Context, wanted: &Wanted<'_>) -> Option<AllocatedBlock> {
        let arena = wanted.parameters.arena;
        Mapper { context, arena, mapped: lock(self.mapped(arena)) }.take_from_any_segment(&wanted.parameters)
    }

    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()> {
        let arena = arena.lock();
        if !arena.is_shared() {
            return Ok(());
        }
        let id = arena.id();
        drop(arena);
        Mapper { context, arena: id, mapped: lock(self.mapped(id)) }.release(pool)
    }
}
