use std::collections::HashMap;
use std::sync::Arc;

use accelerator_core::{
    Device, DeviceProperties, History, HistoryAction, HistoryContext, HistoryEntry, SegmentSnapshot,
};

use super::place::Place;
use super::settings::allocator_settings;
use super::stack::Names;
use crate::snapshot::{
    Block, DeviceNotes, Frame, Frames, MemorySnapshot, Note, NoteKind, Segment, TraceAction, TraceEntry,
};

impl MemorySnapshot {
    /// Adds the contents and the history of a device's allocator.
    pub fn add(&mut self, device: Device, properties: &DeviceProperties, history: &History) {
        let mut places = Places::default();
        let segments = &history.snapshot.segments;
        self.segments.extend(segments.iter().map(|segment| segment_of(segment, history, &mut places)));
        let aliases = &history.snapshot.aliases;
        self.aliases.extend(aliases.iter().map(|segment| segment_of(segment, history, &mut places)));
        let mut trace = Vec::with_capacity(history.entries.len());
        let mut notes = Vec::new();
        let mut config = history.settings;
        for entry in &history.entries {
            let kind = match &entry.action {
                HistoryAction::CacheEmptied => NoteKind::CacheEmptied,
                HistoryAction::Refused => NoteKind::Refused,
                HistoryAction::MemoryFractionChanged(fraction) => NoteKind::MemoryFraction(*fraction),
                HistoryAction::SettingsChanged(changed) => {
                    config = **changed;
                    NoteKind::Settings(changed.to_string())
                }
                HistoryAction::Trace(action) => {
                    trace.push(entry_of(entry, *action, &mut places));
                    continue;
                }
            };
            notes.push(Note { before: trace.len() as u64, kind });
        }
        let mut order: Vec<_> = segments.iter().map(|segment| (segment.created, segment.address)).collect();
        order.sort_unstable();
        let names = history.snapshot.pool_names.iter();
        self.notes.push(DeviceNotes {
            device: device.index,
            kind: device.kind.name().to_owned(),
            name: properties.name.clone(),
            total_memory: properties.total_memory,
            settings: history.settings.to_string(),
            memory_fraction: history.memory_fraction,
            dropped: history.dropped,
            segment_order: order.into_iter().map(|(_, address)| address).collect(),
            pool_names: names.map(|(pool, name)| (pool.numbers(), name.to_string())).collect(),
            notes,
        });
        self.settings = allocator_settings(&config);
        let place = device.index as usize;
        if self.device_traces.len() <= place {
            self.device_traces.resize_with(place + 1, Vec::new);
        }
        self.device_traces[place] = trace;
    }
}

fn segment_of(segment: &SegmentSnapshot, history: &History, places: &mut Places) -> Segment {
    let blocks = segment.blocks.iter().map(|block| {
        let context = history.block_contexts.get(&block.address);
        Block {
            address: block.address,
            size: block.size,
            requested_size: block.requested_size,
            state: block.state,
            frames: places.of(context).frames,
        }
    });
    Segment {
        device: segment.device.index,
        address: segment.address,
        total_size: segment.total_size,
        allocated_size: segment.allocated_size,
        active_size: segment.active_size,
        requested_size: segment.requested_size,
        stream: segment.stream.get().into(),
        segment_type: segment.pool,
        pool_id: segment.mem_pool.numbers(),
        is_expandable: segment.expandable,
        is_paused: segment.paused,
        blocks: blocks.collect(),
        frames: places.of(history.segment_contexts.get(&segment.address)).frames,
    }
}

fn entry_of(entry: &HistoryEntry, action: TraceAction, places: &mut Places) -> TraceEntry {
    let Named { frames, metadata } = places.of(entry.context.as_ref());
    TraceEntry {
        action,
        address: entry.address,
        size: entry.size,
        stream: entry.stream.get().into(),
        time_us: i64::try_from(entry.time / 1000).unwrap_or(i64::MAX),
        frames,
        pool_id: entry.mem_pool.numbers(),
        user_metadata: metadata,
        compile_context: Arc::clone(&places.no_compiler),
        other: Vec::new(),
    }
}

/// A place with the names of its calls.
#[derive(Clone)]
struct Named {
    frames: Frames,
    metadata: Arc<str>,
}

/// The names of places. Each is looked up once.
struct Places {
    names: Names,
    /// The places by the addresses of their contexts, which outlive this table.
    known: HashMap<usize, Named>,
    /// The lists of calls. Places with the same calls share a list.
    lists: HashMap<Vec<Arc<Frame>>, Frames>,
    nowhere: Named,
    no_compiler: Arc<str>,
}

impl Default for Places {
    fn default() -> Self {
        let nowhere = Named { frames: [].into(), metadata: "".into() };
        let no_compiler = "N/A".into();
        Self { names: Names::default(), known: HashMap::new(), lists: HashMap::new(), nowhere, no_compiler }
    }
}

impl Places {
    fn of(&mut self, context: Option<&HistoryContext>) -> Named {
        // Other code may have recorded the history, with contexts of another type.
        let Some(place) = context.and_then(|context| context.downcast_ref::<Place>()) else {
            return self.nowhere.clone();
        };
        let key = std::ptr::from_ref(place).addr();
        if let Some(named) = self.known.get(&key) {
            return named.clone();
        }
        let mut frames = place.stack.as_ref().map(|stack| self.names.of(stack)).unwrap_or_default();
        frames.extend(place.scope.as_ref().map(|scope| {
            // The scope becomes the outermost call, so that flame graphs group by it.
            Arc::new(Frame { name: Arc::clone(scope), filename: "scope".into(), line: 0 })
        }));
        let frames = self.lists.entry(frames).or_insert_with_key(|frames| frames.as_slice().into());
        let metadata = place.metadata.as_ref().unwrap_or(&self.nowhere.metadata);
        let named = Named { frames: Arc::clone(frames), metadata: Arc::clone(metadata) };
        self.known.insert(key, named.clone());
        named
    }
}
