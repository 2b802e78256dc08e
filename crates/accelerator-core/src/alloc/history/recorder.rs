//! The recorder of a history.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{ContextsOf, History, HistoryAction, HistoryContext, HistoryEntry, Recording};
use crate::alloc::settings::AllocatorConfig;
use crate::types::{Snapshot, StreamId, TraceAction};

/// The newest entries, and the contexts of what is alive. Part of the device's statistics, under whose lock all that it
/// tells of is counted: so its order is theirs.
pub(crate) struct Recorder {
    recording: Recording,
    entries: VecDeque<HistoryEntry>,
    dropped: u64,
    settings: AllocatorConfig,
    memory_fraction: f64,
    blocks: ByAddress,
    segments: ByAddress,
    /// What contexts hold is the user's, so they are dropped outside the lock.
    pub(crate) discarded: Vec<HistoryContext>,
}

/// Where something happened: at which address, with how many bytes, on which stream.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: StreamId,
}

impl Subject {
    pub(crate) const NONE: Self = Self { address: 0, size: 0, stream: StreamId::DEFAULT };

    fn entry(self, action: HistoryAction, context: Option<HistoryContext>) -> HistoryEntry {
        let Self { address, size, stream } = self;
        HistoryEntry { action, address, size, stream, time: now(), context }
    }
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

    /// Goes on with other limits; what is kept already stays as far as they allow.
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

    /// A block was freed by its user: `completed`, and no other stream uses it.
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

    /// No other stream uses a block any more that was freed before.
    pub(crate) fn free_completed(&mut self, subject: Subject) {
        let context = self.of_free(subject.address, None);
        self.trace(TraceAction::FreeCompleted, subject, context);
        self.discarded.extend(keep(&mut self.blocks, subject.address, None));
    }

    /// Memory came: a segment, or pages so many bytes behind the start of theirs. As in PyTorch the first of all stand for
    /// the segment.
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

    /// Memory goes back: a segment, or pages.
    pub(crate) fn memory_left(&mut self, action: TraceAction, subject: Subject) {
        let context = self.segments.remove(&subject.address);
        self.trace(action, subject, context);
    }

    /// What changes no context.
    pub(crate) fn trace(&mut self, action: TraceAction, subject: Subject, context: Option<HistoryContext>) {
        let context = self.of_entry(context, ContextsOf::Alloc);
        self.push(subject.entry(HistoryAction::Trace(action), context));
    }

    /// What concerns neither a block nor a segment.
    pub(crate) fn note(&mut self, action: HistoryAction) {
        self.push(Subject::NONE.entry(action, None));
    }

    /// All of it, beside what the allocator holds now.
    pub(crate) fn history(&self, snapshot: Snapshot) -> History {
        History {
            entries: self.entries.iter().cloned().collect(),
            dropped: self.dropped,
            block_contexts: self.blocks.iter().map(|(at, context)| (*at, Arc::clone(context))).collect(),
            segment_contexts: self.segments.iter().map(|(at, context)| (*at, Arc::clone(context))).collect(),
            ..History::unrecorded(snapshot, self.settings, self.memory_fraction)
        }
    }

    /// A free's own context, where frees have one, else that of the allocation.
    fn of_free(&mut self, address: u64, context: Option<HistoryContext>) -> Option<HistoryContext> {
        let own = self.of_entry(context, ContextsOf::All);
        let of_allocation =
            || self.blocks.get(&address).filter(|_| self.recording.contexts >= ContextsOf::Alloc).cloned();
        own.or_else(of_allocation)
    }

    /// The context, where entries keep it from this level on.
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

/// Keeps the context of what is at an address now, if it has one. That of what was there before.
fn keep(contexts: &mut ByAddress, address: u64, context: Option<&HistoryContext>) -> Option<HistoryContext> {
    match context {
        Some(context) => contexts.insert(address, Arc::clone(context)),
        None if contexts.is_empty() => None, // nothing to look for
        None => contexts.remove(&address),
    }
}

fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_secs() * 1_000_000_000 + u64::from(since_1970.subsec_nanos())
}
