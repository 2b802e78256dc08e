//! What happened in an allocator, in order: kept only while somebody wants it. PyTorch: `TraceEntry`, `recordHistory`.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::config::AllocatorConfig;
use super::expandable::PageRange;
use crate::types::{Snapshot, StreamId};

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
    pub(super) fn capture_of_frees(&self) -> Option<CaptureContext> {
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
    pub(super) fn unrecorded(snapshot: Snapshot, settings: AllocatorConfig, memory_fraction: f64) -> Self {
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

/// What can happen. The first group is PyTorch's; with the second a history can be replayed.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryAction {
    /// A block was allocated. PyTorch: `alloc`.
    Alloc,
    /// A block was freed by its user. PyTorch: `free_requested`.
    FreeRequested,
    /// And no other stream uses it any more. PyTorch: `free_completed`.
    FreeCompleted,
    /// A segment was taken from the driver. PyTorch: `segment_alloc`.
    SegmentAlloc,
    /// A segment goes back to the driver. PyTorch: `segment_free`.
    SegmentFree,
    /// Pages were mapped into an expandable segment. PyTorch: `segment_map`.
    SegmentMap,
    /// Pages of an expandable segment go back to the driver. PyTorch: `segment_unmap`.
    SegmentUnmap,
    /// Somebody looked: [`CachingAllocator::snapshot`](super::CachingAllocator::snapshot). PyTorch: `snapshot`.
    Snapshot,
    /// A request failed for lack of memory. PyTorch: `oom`.
    OutOfMemory {
        /// Bytes that the device had free, as far as it tells.
        device_free: u64,
    },

    /// The cache is about to be emptied on demand.
    CacheEmptied,
    /// The driver refused a segment for lack of memory.
    Refused,
    /// The settings were changed.
    SettingsChanged(Box<AllocatorConfig>),
    /// The memory fraction was changed.
    MemoryFractionChanged(f64),
}

/// The newest entries, and the contexts of what is alive. Guarded by the ledger's lock, under which all that it tells of enters
/// the books: so its order is theirs.
pub(super) struct Recorder {
    max_entries: usize,
    contexts: ContextsOf,
    entries: VecDeque<HistoryEntry>,
    dropped: u64,
    settings: AllocatorConfig,
    memory_fraction: f64,
    blocks: ByAddress,
    segments: ByAddress,
    /// What contexts hold is the user's, so they are dropped outside the lock.
    discarded: Vec<HistoryContext>,
}

/// Contexts by address. The hash is a quick one: nobody chooses addresses to slow this down.
type ByAddress = HashMap<u64, HistoryContext, BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, address: u64) {
        // Both halves of the product, since addresses are multiples of a power of two.
        let product = u128::from(address) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Recorder {
    pub(super) fn new(recording: &Recording, settings: AllocatorConfig, memory_fraction: f64) -> Self {
        Self {
            max_entries: recording.max_entries,
            contexts: recording.contexts,
            entries: VecDeque::new(),
            dropped: 0,
            settings,
            memory_fraction,
            blocks: ByAddress::default(),
            segments: ByAddress::default(),
            discarded: Vec::new(),
        }
    }

    /// Goes on with other limits; what is kept already stays as far as they allow.
    pub(super) fn change(&mut self, recording: &Recording) {
        self.max_entries = recording.max_entries;
        self.contexts = recording.contexts;
        while self.entries.len() > self.max_entries {
            self.drop_oldest();
        }
    }

    pub(super) fn allocated(
        &mut self,
        address: u64,
        requested: u64,
        stream: StreamId,
        context: Option<HistoryContext>,
    ) {
        Self::keep(&mut self.blocks, address, context.as_ref(), &mut self.discarded);
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(HistoryAction::Alloc, address, requested, stream, context);
    }

    /// A block was freed by its user: `completed`, and no other stream uses it.
    pub(super) fn freed(
        &mut self,
        address: u64,
        requested: u64,
        stream: StreamId,
        context: Option<HistoryContext>,
        completed: bool,
    ) {
        let (time, context) = (now(), self.of_free(address, context));
        if completed {
            self.push_at(time, HistoryAction::FreeRequested, address, requested, stream, context.clone());
            self.push_at(time, HistoryAction::FreeCompleted, address, requested, stream, context);
            Self::keep(&mut self.blocks, address, None, &mut self.discarded);
        } else {
            self.push_at(time, HistoryAction::FreeRequested, address, requested, stream, context);
        }
    }

    /// No other stream uses a block any more that was freed before.
    pub(super) fn free_completed(&mut self, address: u64, requested: u64, stream: StreamId) {
        let context = self.of_free(address, None);
        self.push(HistoryAction::FreeCompleted, address, requested, stream, context);
        Self::keep(&mut self.blocks, address, None, &mut self.discarded);
    }

    pub(super) fn segment_made(
        &mut self,
        address: u64,
        size: u64,
        stream: StreamId,
        context: Option<HistoryContext>,
    ) {
        Self::keep(&mut self.segments, address, context.as_ref(), &mut self.discarded);
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(HistoryAction::SegmentAlloc, address, size, stream, context);
    }

    pub(super) fn segment_given_back(&mut self, address: u64, size: u64, stream: StreamId) {
        let context = self.segments.remove(&address);
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(HistoryAction::SegmentFree, address, size, stream, context);
    }

    /// Pages were mapped so many bytes behind the start of their segment. As in PyTorch the first of all stand for the segment.
    pub(super) fn pages_mapped(
        &mut self,
        address: u64,
        range: PageRange,
        stream: StreamId,
        context: Option<HistoryContext>,
    ) {
        if range.offset == 0 {
            Self::keep(&mut self.segments, address, context.as_ref(), &mut self.discarded);
        }
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(HistoryAction::SegmentMap, address, range.len, stream, context);
    }

    pub(super) fn pages_unmapped(&mut self, address: u64, size: u64, stream: StreamId) {
        let context = self.segments.remove(&address);
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(HistoryAction::SegmentUnmap, address, size, stream, context);
    }

    pub(super) fn out_of_memory(
        &mut self,
        size: u64,
        stream: StreamId,
        device_free: u64,
        context: Option<HistoryContext>,
    ) {
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(HistoryAction::OutOfMemory { device_free }, 0, size, stream, context);
    }

    /// Somebody looked while so many bytes were active.
    pub(super) fn looked(&mut self, active: u64) {
        self.push(HistoryAction::Snapshot, 0, active, StreamId::DEFAULT, None);
    }

    /// What concerns neither a block nor a segment.
    pub(super) fn note(&mut self, action: HistoryAction) {
        self.push(action, 0, 0, StreamId::DEFAULT, None);
    }

    /// What to drop once the lock is let go.
    pub(super) fn discarded(&mut self) -> Vec<HistoryContext> {
        std::mem::take(&mut self.discarded)
    }

    /// All of it, beside what the allocator holds now.
    pub(super) fn history(&self, snapshot: Snapshot) -> History {
        History {
            snapshot,
            entries: self.entries.iter().cloned().collect(),
            dropped: self.dropped,
            settings: self.settings,
            memory_fraction: self.memory_fraction,
            block_contexts: self.blocks.iter().map(|(at, context)| (*at, Arc::clone(context))).collect(),
            segment_contexts: self.segments.iter().map(|(at, context)| (*at, Arc::clone(context))).collect(),
        }
    }

    /// The context of what is at an address now, if it has one.
    fn keep(
        contexts: &mut ByAddress,
        address: u64,
        context: Option<&HistoryContext>,
        discarded: &mut Vec<HistoryContext>,
    ) {
        let before = match context {
            Some(context) => contexts.insert(address, Arc::clone(context)),
            None if contexts.is_empty() => None, // nothing to look for
            None => contexts.remove(&address),
        };
        discarded.extend(before);
    }

    /// A free's own context, where frees have one, else that of the allocation.
    fn of_free(&mut self, address: u64, context: Option<HistoryContext>) -> Option<HistoryContext> {
        let own = self.of_entry(context, ContextsOf::All);
        let of_allocation =
            || self.blocks.get(&address).filter(|_| self.contexts >= ContextsOf::Alloc).cloned();
        own.or_else(of_allocation)
    }

    /// The context, where entries keep it from this level on.
    fn of_entry(&mut self, context: Option<HistoryContext>, level: ContextsOf) -> Option<HistoryContext> {
        if self.contexts >= level {
            return context;
        }
        self.discarded.extend(context);
        None
    }

    fn push(
        &mut self,
        action: HistoryAction,
        address: u64,
        size: u64,
        stream: StreamId,
        context: Option<HistoryContext>,
    ) {
        self.push_at(now(), action, address, size, stream, context);
    }

    fn push_at(
        &mut self,
        time: u64,
        action: HistoryAction,
        address: u64,
        size: u64,
        stream: StreamId,
        context: Option<HistoryContext>,
    ) {
        self.entries.push_back(HistoryEntry { action, address, size, stream, time, context });
        if self.entries.len() > self.max_entries {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.dropped += 1;
        match entry.action {
            HistoryAction::SettingsChanged(config) => self.settings = *config,
            HistoryAction::MemoryFractionChanged(fraction) => self.memory_fraction = fraction,
            _ => {}
        }
        self.discarded.extend(entry.context);
    }
}

fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_secs() * 1_000_000_000 + u64::from(since_1970.subsec_nanos())
}
