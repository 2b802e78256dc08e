//! The caching allocator. `docs/architecture/README.md` follows an allocation through it.
//!
//! Each module uses only those above it in this list; a test holds them to it.
//!
//! | module | what it is |
//! |---|---|
//! | [`settings`] | what can be set, and PyTorch's rules for sizes |
//! | [`blocks`] | segments and the blocks that they are split into |
//! | [`history`] | what happened, while somebody wants it recorded |
//! | [`stats`] | what a stream counts, and the sums of a device |
//! | [`arena`] | what one stream holds |
//! | [`driver`] | the driver without its types |
//! | [`arenas`] | all arenas of a device, and its statistics |
//! | [`source`] | where memory comes from and goes to |
//! | [`pending`], [`hooks`] | freed blocks that streams still use; what users hang in |
//! | [`device`] | the allocator of a device: the warm path, the slow path, the ladder |
//! | [`allocator`] | the same with the types of a backend |

mod allocator;
mod arena;
mod arenas;
mod blocks;
mod device;
mod driver;
mod history;
mod hooks;
mod pending;
mod settings;
mod source;
mod stats;

pub use self::allocator::{Allocation, CachingAllocator, ForeignAllocation};
pub use self::history::{
    CaptureContext, ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording,
};
pub(crate) use self::pending::EventQueues;
pub(crate) use self::settings::HostSettings;
pub use self::settings::{AllocatorConfig, Policy, RoundupDivisions};
pub use self::source::ChunkLengths;
