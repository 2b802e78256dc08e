mod pages;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use accelerator_core::{Bytes, MemPoolId};

use super::profile::{Marker, Profile, Sample, Span};
use super::segments::{MapBlock, MapSegment, Moment, scope};
use crate::snapshot::{
    BlockState, DeviceNotes, MemorySnapshot, Note, NoteKind, PoolKind, Segment, TraceAction, TraceEntry,
};
use crate::tracker::MemoryUse;

/// The allocator rounds requests up to a multiple of this. A history contains only the requests.
const ROUNDED_TO: u64 = 512;

impl Profile {
    /// Creates a profile from the history of one device. Each entry is an operator. As far as the history goes back,
    /// all numbers are exact, except for the sizes of blocks that no longer exist: each is the request, rounded up to
    /// 512 bytes.
    pub fn of_snapshot(title: &str, snapshot: &MemorySnapshot, device: u32) -> Self {
        let none = Vec::new();
        let entries = snapshot.device_traces.get(device as usize).unwrap_or(&none);
        let segments: Vec<_> = snapshot.segments.iter().filter(|segment| segment.device == device).collect();
        let aliases: Vec<_> = snapshot.aliases.iter().filter(|alias| alias.device == device).collect();
        let mut state = State::at_the_end(&segments, &aliases);
        state.has_aliases = !aliases.is_empty() || is_compact(snapshot, device);
        let mut profile = Self { title: title.to_owned(), ..Self::default() };
        profile.samples = samples(&mut state, entries);
        profile.allocated_before = Some(bytes(state.allocated));
        profile.spans = spans(entries, segments.iter().chain(&aliases));
        profile.markers = markers(snapshot, device, &profile);
        profile.moments = moments(&profile, state, entries);
        let at_the_end = segments.into_iter().map(|segment| MapSegment::new(segment, false));
        let at_the_end = at_the_end.chain(aliases.into_iter().map(|alias| MapSegment::new(alias, true))).collect();
        let call = entries.len().saturating_sub(1);
        profile.moments.push(Moment { name: "the end".to_owned(), call, segments: at_the_end });
        if let Some(notes) = snapshot.notes.iter().find(|notes| notes.device == device) {
            let memory = (notes.total_memory > 0).then_some(notes.total_memory);
            profile.capacity = memory;
            let facts = [("device", &notes.name), ("kind", &notes.kind), ("settings", &notes.settings)];
            let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
            let names = notes.pool_names.iter();
            profile.pool_names =
                names.map(|((graph, user), name)| (MemPoolId::new(*graph, *user), name.as_str().into())).collect();
            profile.facts = facts.map(|(name, value)| (name.to_owned(), value.clone())).collect();
            if notes.dropped > 0 {
                profile.facts.push(("older entries dropped".to_owned(), notes.dropped.to_string()));
            }
        }
        profile
    }
}

/// The memory of a device, as far as a history records it.
#[derive(Clone, Default)]
struct State {
    segments: BTreeMap<u64, MapSegment>,
    /// The addresses of segments that are pages of expandable segments.
    ranges: HashSet<u64>,
    /// Whether the policy `compact` was in use, which places blocks in aliases. Which bytes of segments such blocks use
    /// is known only at the end.
    has_aliases: bool,
    blocks: BTreeMap<u64, MapBlock>,
    allocated: i128,
    active: i128,
    reserved: i128,
}

impl State {
    fn at_the_end(segments: &[&Segment], aliases: &[&Segment]) -> Self {
        let mut state = Self::default();
        for segment in segments {
            state.reserved += i128::from(segment.total_size);
            let mut address = segment.address;
            for block in &segment.blocks {
                if block.state.is_active() {
                    state.put(address, block.size, block.state, scope(&block.frames));
                }
                address = address.saturating_add(block.size);
            }
            // Since when a segment is paused is unknown.
            let of_file = MapSegment::new(segment, false);
            state.segments.insert(segment.address, MapSegment { is_paused: false, blocks: Vec::new(), ..of_file });
            if segment.is_expandable {
                state.ranges.insert(segment.address);
            }
            // Until it is drawn, a segment has a single block, which has the segment's size.
            state.resize(segment.address, segment.total_size);
        }
        for block in aliases.iter().flat_map(|alias| &alias.blocks) {
            state.put(block.address, block.size, block.state, scope(&block.frames));
        }
        state
    }

    fn resize(&mut self, address: u64, size: u64) {
        if let Some(segment) = self.segments.get_mut(&address) {
            segment.blocks = vec![MapBlock { size, state: BlockState::Inactive, scope: Arc::default() }];
        }
    }

    fn put(&mut self, address: u64, size: u64, state: BlockState, scope: Arc<str>) {
        self.take(address);
        self.count(size, state, 1);
        self.blocks.insert(address, MapBlock { size, state, scope });
    }

    fn take(&mut self, address: u64) -> Option<MapBlock> {
        let block = self.blocks.remove(&address)?;
        self.count(block.size, block.state, -1);
        Some(block)
    }

    fn count(&mut self, size: u64, state: BlockState, sign: i128) {
        let bytes = sign * i128::from(size);
        self.active += bytes;
        if state == BlockState::Allocated {
            self.allocated += bytes;
        }
    }

    fn turn(&mut self, entry: &TraceEntry, to: BlockState) {
        let block = self.take(entry.address);
        let (size, scope) =
            block.map_or_else(|| (rounded(entry), scope(&entry.frames)), |block| (block.size, block.scope));
        self.put(entry.address, size, to, scope);
    }

    fn add_segment(&mut self, entry: &TraceEntry) {
        self.reserved += i128::from(entry.size);
        // Only segments of the small pool are this size or smaller.
        let pool = if entry.size <= 2 << 20 { PoolKind::Small } else { PoolKind::Large };
        let TraceEntry { stream, address, .. } = *entry;
        let (mem_pool, is_alias, is_paused, blocks) = (mem_pool(entry), false, false, Vec::new());
        let segment = MapSegment { pool, mem_pool, stream, address, is_alias, is_paused, blocks };
        self.segments.entry(address).or_insert(segment);
        self.resize(entry.address, entry.size);
    }

    fn remove_segment(&mut self, entry: &TraceEntry) {
        self.reserved -= i128::from(entry.size);
        self.segments.remove(&entry.address);
    }

    fn apply(&mut self, entry: &TraceEntry) {
        match entry.action {
            TraceAction::Alloc => self.put(entry.address, rounded(entry), BlockState::Allocated, scope(&entry.frames)),
            TraceAction::FreeRequested => self.turn(entry, BlockState::PendingFree),
            TraceAction::FreeCompleted => drop(self.take(entry.address)),
            TraceAction::SegmentAlloc => self.add_segment(entry),
            TraceAction::SegmentFree => self.remove_segment(entry),
            TraceAction::SegmentMap => self.add_pages(entry),
            TraceAction::SegmentUnmap => self.remove_pages(entry),
            TraceAction::Snapshot | TraceAction::OutOfMemory { .. } | TraceAction::Other => {}
        }
    }

    fn undo(&mut self, entry: &TraceEntry) {
        match entry.action {
            TraceAction::Alloc => drop(self.take(entry.address)),
            TraceAction::FreeRequested => self.turn(entry, BlockState::Allocated),
            TraceAction::FreeCompleted => {
                self.put(entry.address, rounded(entry), BlockState::PendingFree, scope(&entry.frames));
            }
            TraceAction::SegmentAlloc => self.remove_segment(entry),
            TraceAction::SegmentFree => self.add_segment(entry),
            TraceAction::SegmentMap => self.remove_pages(entry),
            TraceAction::SegmentUnmap => self.add_pages(entry),
            TraceAction::Snapshot | TraceAction::OutOfMemory { .. } | TraceAction::Other => {}
        }
    }

    /// Returns the segments, with free blocks in the gaps.
    fn map(&self) -> Vec<MapSegment> {
        let free = |size| MapBlock { size, state: BlockState::Inactive, scope: Arc::default() };
        let segments = self.segments.values().map(|segment| {
            let end = segment.address.saturating_add(segment.size());
            let mut blocks = Vec::new();
            let mut at = segment.address;
            for (address, block) in self.blocks.range(segment.address..end) {
                if *address > at {
                    blocks.push(free(address - at));
                }
                // The numbers in a file may be inconsistent.
                let size = block.size.min(end - address).saturating_sub(at.saturating_sub(*address));
                if size > 0 {
                    blocks.push(MapBlock { size, ..block.clone() });
                }
                at = at.max(address.saturating_add(block.size).min(end));
            }
            if end > at {
                blocks.push(free(end - at));
            }
            MapSegment { blocks, ..segment.clone() }
        });
        segments.chain(self.aliases()).collect()
    }

    /// Returns the blocks of aliases, which are in no segment.
    fn aliases(&self) -> impl Iterator<Item = MapSegment> {
        let is_in_segment = |address: u64| {
            let before = self.segments.range(..=address).next_back();
            before.is_some_and(|(start, segment)| address - start < segment.size())
        };
        let blocks = self.blocks.iter().filter(move |(address, _)| self.has_aliases && !is_in_segment(**address));
        blocks.map(|(address, block)| MapSegment {
            // What follows is unknown and not shown.
            pool: PoolKind::Large,
            mem_pool: MemPoolId::DEFAULT,
            stream: 0,
            address: *address,
            is_alias: true,
            is_paused: false,
            blocks: vec![block.clone()],
        })
    }
}

/// Returns the memory pool of an entry.
fn mem_pool(entry: &TraceEntry) -> MemPoolId {
    let (graph, user) = entry.pool_id;
    MemPoolId::new(graph, user)
}

/// Returns whether a device had the policy `compact` at any time.
fn is_compact(snapshot: &MemorySnapshot, device: u32) -> bool {
    let names = |settings: &str| settings.contains("policy:compact");
    let of_note = |note: &Note| matches!(&note.kind, NoteKind::Settings(settings) if names(settings));
    let of_device = |notes: &DeviceNotes| names(&notes.settings) || notes.notes.iter().any(of_note);
    snapshot.notes.iter().filter(|notes| notes.device == device).any(of_device)
}

/// Converts a count to bytes. It can be negative if the file is inconsistent.
fn bytes(count: i128) -> u64 {
    count.clamp(0, u64::MAX.into()) as u64
}

fn rounded(entry: &TraceEntry) -> u64 {
    entry.size.checked_next_multiple_of(ROUNDED_TO).unwrap_or(entry.size)
}

/// Returns the memory after each entry, computed backwards from the end, where it is known. Leaves `state` as it was at
/// the start.
fn samples(state: &mut State, entries: &[TraceEntry]) -> Vec<Sample> {
    let mut names = Names::default();
    let sample = |entry: &TraceEntry| {
        let sample = Sample {
            name: names.of(entry),
            time_us: entry.time_us,
            memory: MemoryUse {
                allocated: bytes(state.allocated),
                active: bytes(state.active),
                reserved: bytes(state.reserved),
            },
        };
        state.undo(entry);
        sample
    };
    let mut samples: Vec<_> = entries.iter().rev().map(sample).collect();
    samples.reverse();
    samples
}

/// The names of entries. Each text is stored once.
#[derive(Default)]
struct Names(HashMap<String, Arc<str>>);

impl Names {
    fn of(&mut self, entry: &TraceEntry) -> Arc<str> {
        let scope = scope(&entry.frames);
        let action = match entry.action {
            TraceAction::Alloc if !scope.is_empty() => return self.once(scope.to_string()),
            TraceAction::Alloc => "alloc",
            TraceAction::FreeRequested => "free",
            TraceAction::FreeCompleted => "free completed",
            TraceAction::SegmentAlloc => "segment alloc",
            TraceAction::SegmentFree => "segment free",
            TraceAction::SegmentMap => "segment map",
            TraceAction::SegmentUnmap => "segment unmap",
            TraceAction::Snapshot => return self.once("snapshot".to_owned()),
            TraceAction::OutOfMemory { .. } => "out of memory",
            TraceAction::Other => return self.once("other".to_owned()),
        };
        let size = Bytes(entry.size);
        self.once(if scope.is_empty() { format!("{action} {size}") } else { format!("{action} {size}, {scope}") })
    }

    fn once(&mut self, name: String) -> Arc<str> {
        self.0.entry(name).or_insert_with_key(|name| name.as_str().into()).clone()
    }
}

/// Returns the allocations in the history and the older ones.
fn spans<'s>(entries: &[TraceEntry], segments: impl Iterator<Item = &'s &'s Segment>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut live = HashMap::<u64, usize>::new();
    for (call, entry) in entries.iter().enumerate() {
        match entry.action {
            TraceAction::Alloc => {
                live.insert(entry.address, spans.len());
                spans.push(Span { bytes: entry.size, start: Some(call), end: None });
            }
            TraceAction::FreeRequested => match live.remove(&entry.address) {
                Some(span) => spans[span].end = Some(call),
                None => spans.push(Span { bytes: entry.size, start: None, end: Some(call) }),
            },
            _ => {}
        }
    }
    let blocks = segments.flat_map(|segment| &segment.blocks);
    let older = blocks.filter(|block| block.state == BlockState::Allocated && !live.contains_key(&block.address));
    spans.extend(older.map(|block| Span { bytes: block.requested_size, start: None, end: None }));
    spans
}

/// Returns the starts of annotations, positioned by the times of the entries.
fn markers(snapshot: &MemorySnapshot, device: u32, profile: &Profile) -> Vec<Marker> {
    if !profile.has_times() {
        return Vec::new();
    }
    let starts =
        snapshot.annotations.iter().filter(|annotation| annotation.device == device && &*annotation.stage == "START");
    let call = |time: i64| profile.samples.partition_point(|sample| sample.time_us < time);
    let mut markers: Vec<_> =
        starts.map(|start| Marker { name: start.name.clone(), call: call(start.time_us) }).collect();
    markers.sort_by_key(|marker| marker.call);
    markers
}

/// Returns the segments at the peaks and at regular intervals. `state` is the state at the start.
fn moments(profile: &Profile, mut state: State, entries: &[TraceEntry]) -> Vec<Moment> {
    let wanted = profile.moments_of_interest(Profile::EVEN_MOMENTS);
    let mut wanted = wanted.into_iter().filter(|(call, _)| call + 1 < entries.len()).peekable();
    let mut moments = Vec::new();
    for (call, entry) in entries.iter().enumerate() {
        state.apply(entry);
        while let Some((_, name)) = wanted.next_if(|(at, _)| *at == call) {
            moments.push(Moment { name, call, segments: state.map() });
        }
    }
    moments
}

#[cfg(test)]
mod tests;
