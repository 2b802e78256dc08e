//! The recorder of a history.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording};
use crate::alloc::settings::AllocatorConfig;
use crate::types::{MemPoolId, Snapshot, StreamId, TraceAction};

/// The newest entries, and the contexts of live blocks and segments. It is part of the device statistics. Every event
/// that it records is counted under their lock, so its entries are in the order of the counts.
pub(crate) struct Recorder {
    recording: Recording,
    entries: VecDeque<HistoryEntry>,
    dropped: u64,
    settings: AllocatorConfig,
    memory_fraction: f64,
    blocks: ByAddress,
    segments: ByAddress,
    /// Contexts to be dropped outside the lock, because their contents belong to the user.
    pub(crate) discarded: Vec<HistoryContext>,
}

/// What an event concerns: an address, a number of bytes, a stream and a private pool.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: StreamId,
    pub(crate) mem_pool: MemPoolId,
}

impl Subject {
    pub(crate) const NONE: Self = Self { address: 0, size: 0, stream: StreamId::DEFAULT, mem_pool: MemPoolId::DEFAULT };

    fn entry(self, action: HistoryAction, context: Option<HistoryContext>) -> HistoryEntry {
        let Self { address, size, stream, mem_pool } = self;
        HistoryEntry { action, address, size, stream, mem_pool, time: now(), context }
    }
}

/// Contexts by address. The hash is cheap: nobody chooses addresses to attack it.
type ByAddress = HashMap<u64, HistoryContext, BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, address: u64) {
        // Combine both halves of the product, because addresses are multiples of a power of two.
        let product = u128::from(address) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Recorder {
    pub(crate) fn new(recording: Recording, settings: AllocatorConfig, memory_fraction: f64) -> Self {
        Self {
            recording,
            entries: VecDeque::new(),
            dropped: 0,
            settings,
            memory_fraction,
            blocks: ByAddress::default(),
            segments: ByAddress::default(),
            discarded: Vec::new(),
        }
    }

    /// Continues with other options. Existing entries are kept as far as the new limit allows.
    pub(crate) fn change(&mut self, recording: Recording) {
        self.recording = recording;
        while self.entries.len() > recording.max_entries {
            self.drop_oldest();
        }
    }

    pub(crate) fn allocated(&mut self, subject: Subject, context: Option<HistoryContext>) {
        self.discarded.extend(keep(&mut self.blocks, subject.address, context.as_ref()));
        self.trace(TraceAction::Alloc, subject, context);
    }

    /// Records that the user freed a block. `completed`: no other stream uses it.
    pub(crate) fn freed(&mut self, subject: Subject, context: Option<HistoryContext>, completed: bool) {
        let context = self.of_free(subject.address, context);
        let entry = subject.entry(HistoryAction::Trace(TraceAction::FreeRequested), context);
        self.push(entry.clone());
        if completed {
            let action = HistoryAction::Trace(TraceAction::FreeCompleted);
            self.push(HistoryEntry { action, ..entry });
            self.discarded.extend(keep(&mut self.blocks, subject.address, None));
        }
    }

    /// Records that the last stream has finished with a block that was freed earlier.
    pub(crate) fn free_completed(&mut self, subject: Subject) {
        let context = self.of_free(subject.address, None);
        self.trace(TraceAction::FreeCompleted, subject, context);
        self.discarded.extend(keep(&mut self.blocks, subject.address, None));
    }

    /// Records new memory: a segment, or pages at this offset from the start of their segment. As in PyTorch, the
    /// context of the first pages becomes the context of the segment.
    pub(crate) fn memory_came(
        &mut self,
        action: TraceAction,
        subject: Subject,
        offset: u64,
        context: Option<HistoryContext>,
    ) {
        if offset == 0 {
            self.discarded.extend(keep(&mut self.segments, subject.address, context.as_ref()));
        }
        self.trace(action, subject, context);
    }

    /// Records that memory goes back to the driver: a segment, or pages.
    pub(crate) fn memory_left(&mut self, action: TraceAction, subject: Subject) {
        let context = self.segments.remove(&subject.address);
        self.trace(action, subject, context);
    }

    /// Records an event of PyTorch's history that affects no stored context.
    pub(crate) fn trace(&mut self, action: TraceAction, subject: Subject, context: Option<HistoryContext>) {
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(subject.entry(HistoryAction::Trace(action), context));
    }

    /// Records an event that concerns neither a block nor a segment.
    pub(crate) fn note(&mut self, action: HistoryAction) {
        self.push(Subject::NONE.entry(action, None));
    }

    /// Returns the full history, with this snapshot of the current state.
    pub(crate) fn history(&self, snapshot: Snapshot) -> History {
        History {
            entries: self.entries.iter().cloned().collect(),
            dropped: self.dropped,
            block_contexts: self.blocks.iter().map(|(at, context)| (*at, Arc::clone(context))).collect(),
            segment_contexts: self.segments.iter().map(|(at, context)| (*at, Arc::clone(context))).collect(),
            ..History::unrecorded(snapshot, self.settings, self.memory_fraction)
        }
    }

    /// Returns the context for a free: its own if frees get one, otherwise the allocation's.
    fn of_free(&mut self, address: u64, context: Option<HistoryContext>) -> Option<HistoryContext> {
        let own = self.of_entry(context, ContextsOf::All);
        let of_allocation =
            || self.blocks.get(&address).filter(|_| self.recording.contexts >= ContextsOf::Alloc).cloned();
        own.or_else(of_allocation)
    }

    /// Returns the context if entries get one at this level; discards it otherwise.
    fn of_entry(&mut self, context: Option<HistoryContext>, level: ContextsOf) -> Option<HistoryContext> {
        if self.recording.contexts >= level {
            return context;
        }
        self.discarded.extend(context);
        None
    }

    fn push(&mut self, entry: HistoryEntry) {
        self.entries.push_back(entry);
        if self.entries.len() > self.recording.max_entries {
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

/// Stores the current context for an address, if there is one. Returns the previous one.
fn keep(contexts: &mut ByAddress, address: u64, context: Option<&HistoryContext>) -> Option<HistoryContext> {
    match context {
        Some(context) => contexts.insert(address, Arc::clone(context)),
        None if contexts.is_empty() => None, // nothing to remove
        None => contexts.remove(&address),
    }
}

fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_secs() * 1_000_000_000 + u64::from(since_1970.subsec_nanos())
}
