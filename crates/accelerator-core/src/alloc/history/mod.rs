//! The history of an allocator: its events in order, recorded only while recording is on. PyTorch: `TraceEntry`,
//! `recordHistory`.

mod recorder;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use self::recorder::{Recorder, Subject};
use super::settings::AllocatorConfig;
use crate::types::{MemPoolId, Snapshot, StreamId, TraceAction};

/// The context of an event, in whatever form the recording code captures it: a stack, a scope. The core only stores it.
pub type HistoryContext = Arc<dyn Any + Send + Sync>;

/// Captures the context of the calling thread; `None` if there is none.
pub type CaptureContext = fn() -> Option<HistoryContext>;

/// The recording options. PyTorch: `torch.cuda.memory._record_memory_history`.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// The maximum number of entries. When it is exceeded, the oldest ones are dropped.
    pub max_entries: usize,
    /// What gets a context.
    pub contexts: ContextsOf,
    /// Called on the allocating thread, without any lock held, once for each allocation, and with [`ContextsOf::All`]
    /// also for each free. It must not allocate or free memory of the device. It must not panic: a panic during a free
    /// leaks the memory. With `None`, nothing gets a context.
    pub capture: Option<CaptureContext>,
}

impl Recording {
    pub(crate) fn capture_of_frees(&self) -> Option<CaptureContext> {
        self.capture.filter(|_| self.contexts == ContextsOf::All)
    }
}

/// Selects what gets a context. Each level includes the levels above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContextsOf {
    /// Currently allocated blocks, and segments. PyTorch: `state`.
    State,
    /// Also the entries of allocations, and those of frees, which get the context of the allocation. PyTorch: `alloc`.
    Alloc,
    /// Also frees, which get their own context. PyTorch: `all`.
    All,
}

/// The state of an allocator at one moment, and the events that led to it.
#[derive(Clone)]
pub struct History {
    /// All segments and blocks.
    pub snapshot: Snapshot,
    /// The entries recorded so far, oldest first; empty if nothing is recorded.
    pub entries: Vec<HistoryEntry>,
    /// The number of entries that were dropped to make room for newer ones.
    pub dropped: u64,
    /// The settings before the first entry.
    pub settings: AllocatorConfig,
    /// The memory fraction before the first entry.
    pub memory_fraction: f64,
    /// The contexts of the blocks that are not free, by address.
    pub block_contexts: HashMap<u64, HistoryContext>,
    /// The contexts of the segments, by address.
    pub segment_contexts: HashMap<u64, HistoryContext>,
}

impl History {
    /// The history of an allocator that records nothing.
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

/// An event of the history.
#[derive(Clone)]
pub struct HistoryEntry {
    /// What happened.
    pub action: HistoryAction,
    /// The [`DevicePtr::trace_address`](crate::DevicePtr::trace_address) of the block or segment; 0 if there is none.
    pub address: u64,
    /// A number of bytes: for a block, the requested bytes; for a segment, its size; for a failed request, the size of
    /// its block; for a snapshot, the bytes of all active blocks.
    pub size: u64,
    /// The stream of the block or segment; the default stream if there is neither.
    pub stream: StreamId,
    /// The memory pool of the block or segment; the default pool if there is neither.
    pub mem_pool: MemPoolId,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The context of the event.
    pub context: Option<HistoryContext>,
}

impl fmt::Debug for HistoryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, address, size, stream, time, .. } = self;
        write!(f, "{action:?} {{ {address:#x}, size: {size}, stream: {stream}, time: {time} }}")
    }
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryAction {
    /// An event of PyTorch's history. Together with the other kinds, it makes a history replayable.
    Trace(TraceAction),
    /// The cache is about to be emptied at the user's request.
    CacheEmptied,
    /// The driver refused a segment for lack of memory.
    Refused,
    /// The settings were changed.
    SettingsChanged(Box<AllocatorConfig>),
    /// The memory fraction was changed.
    MemoryFractionChanged(f64),
}
