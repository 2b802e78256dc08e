//! The policy `compact`: little more memory than was ever asked for at once. `docs/architecture/compact.md` explains it from the
//! start.
//!
//! The blocks of all streams lie in one arena, that of [`StreamId::SHARED`]. From the bottom:
//!
//! * [`placement_log`] knows where earlier requests went, [`owners`] who may use a free block.
//! * [`ranges`] has the chunks of memory, each at its own address, [`aliases`] the addresses where several of them show
//!   once more, one behind the other. [`place`] finds and gives out bytes.
//! * [`cost_model`] is arithmetic; [`plan`] chooses what a miss does.
//! * [`epochs`] asks the driver what is over; [`grow`] and [`release`] carry plans out.
//! * [`segments`] is what differs without virtual memory.

mod aliases;
mod cost_model;
mod epochs;
mod grow;
mod owners;
mod place;
mod placement_log;
mod plan;
mod ranges;
mod release;
mod segments;

use std::collections::BTreeMap;
use std::sync::Mutex;

use self::aliases::AliasRange;
pub use self::cost_model::ChunkLengths;
use self::epochs::{Mapper, Memory};
use self::owners::Owners;
use self::plan::Effort;
use self::ranges::ReservedRange;
use super::context::{Context, Failure};
use super::interface::{Source, Wanted};
use crate::alloc::arena::{AllocatedBlock, Arena, FreeLists, Store};
use crate::alloc::settings::Request;
use crate::sync::{OwnedLock, lock};
use crate::types::{OutOfMemoryCause, PoolKind, Result, StreamId};

/// The largest request, rounded, of the small pool. Under PyTorch's policy it is 1 MiB; here that leaves less memory idle in
/// one pool while the other is at its peak.
const SMALL_SIZE: u64 = 64 << 10;

/// What the arena of the policy holds.
#[derive(Debug, Default)]
pub(crate) struct Compact {
    store: Store,
    owners: Owners,
    ranges: Vec<ReservedRange>,
    /// Lengths of the chunks of each pool, by position.
    chunks: [BTreeMap<u64, u64>; 2],
    /// By the position of their start.
    aliases: BTreeMap<u64, AliasRange>,
    /// Bytes of all chunks.
    reserved: u64,
    /// Bytes that were asked for, of all blocks in use.
    requested: u64,
    peak_requested: u64,
    /// How often chunks were made.
    growths: u64,
    /// How often an alias was mapped, or memory was given back for other.
    rearranged: u64,
    /// How many aliases were used.
    uses: u64,
}

impl Compact {
    pub(crate) fn new() -> Self {
        Self { store: Store::new(StreamId::SHARED, FreeLists::by_position()), ..Self::default() }
    }

    /// What an arena of this policy holds.
    fn of(arena: &mut Arena) -> &mut Self {
        arena.placement()
    }
}

/// The memory of the policy.
#[derive(Default)]
pub(crate) struct CompactSource {
    /// Locked for as long as the driver maps or unmaps: only a thread that needs new memory, or gives memory back, waits for that.
    memory: Mutex<Memory>,
}

impl Source for CompactSource {
    fn segment_size(&self, context: &Context, arena: &Arena, request: &Request) -> u64 {
        let properties = context.driver.properties();
        match context.driver.address_space() {
            Some(driver) => request.size.next_multiple_of(driver.granularity().get()),
            None => arena.config().segment(request, properties.largest_allocation),
        }
    }

    fn is_hopeless(&self, context: &Context, size: u64) -> bool {
        let properties = context.driver.properties();
        match context.driver.address_space() {
            Some(_) => size > properties.total_memory,
            None => size > properties.largest_allocation,
        }
    }

    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Result<AllocatedBlock, Failure> {
        if wanted.parameters.request.size > context.driver.properties().total_memory {
            return Err(Failure::Refused(OutOfMemoryCause::Device)); // ahead of a list of as many chunks
        }
        let mut mapper = Mapper { context, memory: lock(&self.memory) };
        mapper.end_epochs(wanted.parameters.stream, true);
        let mut grown = mapper.carry_out(&wanted.parameters, Effort::LongRun);
        for effort in [Effort::Exact, Effort::Utmost] {
            // Of segments nothing can be put together, so there they are the same.
            let is_new = effort == Effort::Exact || context.driver.address_space().is_some();
            if is_new && matches!(grown, Err(Failure::Refused(_))) {
                grown = mapper.carry_out(&wanted.parameters, effort);
            }
        }
        grown
    }

    fn release(&self, context: &Context, _arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()> {
        Mapper { context, memory: lock(&self.memory) }.release(pool)
    }
}
