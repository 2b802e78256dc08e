//! What happened in an allocator, in order: kept only while somebody wants it. PyTorch: `TraceEntry`, `recordHistory`.

mod recorder;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use self::recorder::{Recorder, Subject};
use super::settings::AllocatorConfig;
use crate::types::{Snapshot, StreamId, TraceAction};

/// Where something happened, as whoever records finds it: a stack, a scope. The core only keeps it.
pub type HistoryContext = Arc<dyn Any + Send + Sync>;

/// Gives the context of the calling thread; `None`: there is none.
pub type CaptureContext = fn() -> Option<HistoryContext>;

/// What to record. PyTorch: `torch.cuda.memory._record_memory_history`.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// So many entries are kept, the newest.
    pub max_entries: usize,
    /// What keeps a context.
    pub contexts: ContextsOf,
    /// Called under no lock on the thread that allocates, once for each allocation, and with [`ContextsOf::All`] for each free.
    /// It must neither allocate from the device nor free to it, nor panic: in a free that loses the memory. `None`: nothing has
    /// a context.
    pub capture: Option<CaptureContext>,
}

impl Recording {
    pub(crate) fn capture_of_frees(&self) -> Option<CaptureContext> {
        self.capture.filter(|_| self.contexts == ContextsOf::All)
    }
}

/// What keeps a context; each keeps what those above it keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContextsOf {
    /// Blocks that are allocated now, and segments. PyTorch: `state`.
    State,
    /// And the entries of allocations, and of frees that of the allocation. PyTorch: `alloc`.
    Alloc,
    /// And frees their own. PyTorch: `all`.
    All,
}

/// What an allocator holds, and what had happened in it before, at one moment.
#[derive(Clone)]
pub struct History {
    /// All segments and blocks.
    pub snapshot: Snapshot,
    /// What happened since it is recorded, the oldest first; empty where nothing is recorded.
    pub entries: Vec<HistoryEntry>,
    /// Entries that had to go since others came.
    pub dropped: u64,
    /// The settings ahead of the first entry.
    pub settings: AllocatorConfig,
    /// The memory fraction ahead of the first entry.
    pub memory_fraction: f64,
    /// Contexts of the blocks that are not free, by address.
    pub block_contexts: HashMap<u64, HistoryContext>,
    /// Contexts of the segments, by address.
    pub segment_contexts: HashMap<u64, HistoryContext>,
}

impl History {
    /// That of an allocator of which nothing is recorded.
    pub(crate) fn unrecorded(snapshot: Snapshot, settings: AllocatorConfig, memory_fraction: f64) -> Self {
        let (block_contexts, segment_contexts) = (HashMap::new(), HashMap::new());
        let (entries, dropped) = (Vec::new(), 0);
        Self { snapshot, entries, dropped, settings, memory_fraction, block_contexts, segment_contexts }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (segments, entries, dropped) = (self.snapshot.segments.len(), self.entries.len(), self.dropped);
        write!(f, "History {{ {segments} segments, {entries} entries, {dropped} dropped }}")
    }
}

/// One thing that happened.
#[derive(Clone)]
pub struct HistoryEntry {
    /// What it was.
    pub action: HistoryAction,
    /// [`DevicePtr::trace_address`](crate::DevicePtr::trace_address) of the block or segment; 0 where there is none.
    pub address: u64,
    /// Bytes: of a block those that were asked for, of a segment all, of a request that failed those of its block, where
    /// somebody looked those of all active blocks.
    pub size: u64,
    /// The stream of the block or segment; for what concerns none the default stream.
    pub stream: StreamId,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Where it happened.
    pub context: Option<HistoryContext>,
}

impl fmt::Debug for HistoryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, address, size, stream, time, context: _ } = self;
        write!(f, "{action:?} {{ {address:#x}, size: {size}, stream: {stream}, time: {time} }}")
    }
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryAction {
    /// What PyTorch's history has. With the others a history can be replayed.
    Trace(TraceAction),
    /// The cache is about to be emptied on demand.
    CacheEmptied,
    /// The driver refused a segment for lack of memory.
    Refused,
    /// The settings were changed.
    SettingsChanged(Box<AllocatorConfig>),
    /// The memory fraction was changed.
    MemoryFractionChanged(f64),
}
