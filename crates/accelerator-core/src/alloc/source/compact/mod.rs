//! The policy `compact`: little more memory than was ever asked for at once. `docs/architecture/compact.md` explains it from the
//! start.
//!
//! The blocks of all streams lie in one arena, that of [`StreamId::SHARED`]. From the bottom: [`placement_log`] knows where
//! earlier requests went; [`owners`] who may use a free block; [`ranges`] the chunks of memory, each at its own address, and
//! [`aliases`] the addresses where several of them show once more, one behind the other; [`place`] finds and gives out bytes;
//! [`cost_model`] is arithmetic; [`plan`] chooses what a miss does. Then comes the driver: [`epochs`] asks it what is over; [`grow`] and [`release`] bring bookkeeping and driver together. [`segments`] is what is left
//! of that without virtual memory.

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
use self::epochs::Memory;
use self::owners::Owners;
use self::ranges::ReservedRange;
use super::context::{Context, Failure};
use super::interface::{Source, Wanted};
use crate::alloc::arena::{AllocatedBlock, Arena, Store};
use crate::alloc::settings::Request;

use crate::sync::OwnedLock;
use crate::types::{OutOfMemoryCause, PoolKind, Result};

/// The largest request, rounded, of the small pool. Under PyTorch's policy it is 1 MiB; here that leaves less memory idle in
/// one pool while the other is at its peak.
const SMALL_SIZE: u64 = 64 << 10;

/// What the policy knows beside the blocks of its arena.
#[derive(Debug, Default)]
pub(crate) struct Compact {
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

/// The arena that all streams share, taken apart.
struct Shared<'a> {
    store: &'a mut Store,
    compact: &'a mut Compact,
}

impl<'a> Shared<'a> {
    fn of(arena: &'a mut Arena) -> Self {
        let (store, compact) = arena.parts();
        Self { store, compact }
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
        self.grow_shared(context, &wanted.parameters)
    }

    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pools: &[PoolKind]) -> Result<()> {
        self.release_shared(context, arena, pools)
    }
}
