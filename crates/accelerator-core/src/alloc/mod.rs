//! The caching allocator. `docs/architecture/README.md` follows an allocation through it.
//!
//! Each module uses only the modules above it in this list; a test enforces that.
//!
//! | module | contents |
//! |---|---|
//! | [`settings`] | the configuration, and PyTorch's size rules |
//! | [`blocks`] | segments and the blocks that they are split into |
//! | [`history`] | the recorded history, while recording is on |
//! | [`stats`] | the counters of a stream, and the sums of a device |
//! | [`arena`] | the counters, blocks and free lists of one stream |
//! | [`driver`] | the driver, with its types erased |
//! | [`arenas`] | all arenas of a device, and its statistics |
//! | [`source`] | where memory comes from, and where it goes back to |
//! | [`mem_pools`] | the private pools of a device, and the requests that go to them |
//! | [`pending`], [`hooks`] | freed blocks that streams still use; user callbacks |
//! | [`device`] | the allocator of a device: the warm path, the slow path, the ladder |
//! | [`allocator`] | the same allocator with the backend's types |

mod allocator;
mod arena;
mod arenas;
mod blocks;
mod device;
mod driver;
mod history;
mod hooks;
mod mem_pools;
mod pending;
mod settings;
mod source;
mod stats;

pub use self::allocator::{
    Allocation, AllocationKey, CachingAllocator, ForeignAllocation, MemPoolRequests, MemPoolRoute, PoolCheckpoint,
    RestoreError, RestoredKeys, RestoredPool,
};
pub use self::history::{CaptureContext, ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording};
pub(crate) use self::mem_pools::Keeper;
pub(crate) use self::pending::EventQueues;
pub(crate) use self::settings::HostSettings;
pub use self::settings::{AllocatorConfig, Policy, RoundupDivisions};
pub use self::source::ChunkLengths;
pub(crate) use self::source::Limits;
