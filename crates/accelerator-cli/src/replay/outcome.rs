use std::collections::HashMap;

use accelerator_core::{Bytes, Error, MemPoolId, MemoryInfo, PauseReport, Snapshot};

use crate::trace::PoolName;

/// The outcome of a line.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing to show.
    Done,
    /// An allocation failed for lack of memory.
    OutOfMemory(u64),
    /// An allocation of zero bytes.
    Null(u64),
    /// An allocation, and its offset from the device's first address.
    Placed(u64, u64),
    /// An `alloc_at` at an address that is not free.
    Unplaced(u64),
    /// `stats`.
    Statistics(Vec<(String, i64)>),
    /// `snapshot`.
    Snapshot(Box<Segments>),
    /// `meminfo`.
    MemoryInfo(MemoryInfo),
    /// `cacheinfo`.
    LargestAvailable(u64),
    /// `calls`: those of the driver, and those of the allocators of private pools.
    Calls(Vec<(&'static str, u64)>, Vec<SourceCalls>),
    /// `pool_uses`.
    PoolUses(MemPoolId, u32),
    /// `pool_live`.
    PoolLive(MemPoolId, bool),
    /// `restore`.
    Restored(Box<Restored>),
    /// `pause`.
    Paused(PauseReport),
    /// `resume`, of all its pools together.
    Resumed(PauseReport),
    /// A `resume` of these pools failed for lack of memory. All of them are still paused.
    NotResumed(Vec<MemPoolId>),
}

impl Outcome {
    /// Returns whether memory ran out.
    pub(crate) fn lacks_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_) | Self::NotResumed(_))
    }
}

/// What `snapshot` shows.
#[derive(Debug)]
pub struct Segments {
    /// The pool, if it is not of all memory.
    pub pool: Option<MemPoolId>,
    /// The segments.
    pub snapshot: Snapshot,
    /// The trace's numbers of streams.
    pub streams: HashMap<u32, u32>,
    /// The device's first address.
    pub base: u64,
}

/// The calls of the allocator of a private pool.
#[derive(Debug)]
pub struct SourceCalls {
    /// The pool.
    pub pool: MemPoolId,
    /// Calls that asked for memory.
    pub allocs: u64,
    /// Calls that gave memory back.
    pub frees: u64,
}

/// What `restore` did. Each list is in the order of the addresses.
#[derive(Debug)]
pub struct Restored {
    /// The pool.
    pub pool: MemPoolId,
    /// The name of the checkpoint.
    pub name: String,
    /// The allocations that were freed.
    pub freed: Vec<Place>,
    /// The allocations that are live now.
    pub allocated: Vec<Place>,
}

/// An allocation and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub id: u64,
    /// Its offset from the device's first address.
    pub offset: u64,
    /// The size of its block in bytes.
    pub bytes: u64,
}

/// Why a line cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line allocates under the number of an allocation that is live.
    #[error("allocation {0} is already live")]
    LiveAlready(u64),
    /// A line names an allocation that was freed, or never made.
    #[error("allocation {0} is not live: it was already freed or never made")]
    NotLive(u64),
    /// `pool_begin` of a pool that requests are sent to already.
    #[error("requests go to pool {0} already: end that with `pool_end {0}` first")]
    PoolBegun(PoolName),
    /// `pool_end` without `pool_begin`.
    #[error("no requests are sent to pool {0}: `pool_begin {0}` is missing")]
    PoolNotBegun(PoolName),
    /// `capture_begin` of a graph that was captured before.
    #[error("graph {0} was captured already: give each graph a number of its own, also after `graph_reset`")]
    GraphCaptured(u64),
    /// `graph_reset` of a graph that was not captured, or is being captured.
    #[error("graph {0} is not there to be reset: capture it first, from `capture_begin` to `capture_end`")]
    NoGraph(u64),
    /// `capture_end` on a stream on which no capture began.
    #[error("no capture began on stream {0}: name the stream of `capture_begin`")]
    NoCapture(u32),
    /// `restore` without `checkpoint`.
    #[error("pool {0} has no checkpoint `{1}`: `checkpoint {0} {1}` is missing")]
    NoCheckpoint(PoolName, String),
    /// `pool_create` of a pausable pool that exists.
    #[error("pool {0} exists already, and only a new pool can be pausable: give it another number")]
    PoolExists(PoolName),
    /// `pool_create` of a pausable pool with an allocator of its own.
    #[error("pool {0} cannot be pausable with an allocator of its own: leave out `allocator` or `pausable`")]
    OwnAllocator(PoolName),
    /// `pause` or `resume` of a pool that has no handle for that.
    #[error("pool {0} cannot be paused or resumed: make it with `pool_create {0} pausable`")]
    NotPausable(PoolName),
    /// `pause` of a pool whose contents are too large, together with those of other paused pools.
    #[error("the contents of paused pools take more than {}: if you trust the file, add `--no-limits`", Bytes(*.0))]
    KeepsTooMuch(u64),
    /// There is no name for a temporary file.
    #[error("the contents of a paused pool cannot be saved to a temporary file: {0}")]
    NoFile(std::io::Error),
    /// The library returned an error.
    #[error(transparent)]
    Accelerator(#[from] Error),
}
